// What goes between hosts: over which link, and the time that it takes there. Pure.
import type { HostLinkShown, PlanShown } from "../../messages/answers";
import { showBytes, showSeconds } from "../../ui/words";
import { strings } from "../../strings";

type Known = Pick<PlanShown, "ranks" | "host_links">;

/** The hosts of two ranks where they differ. */
export function hostsBetween(plan: Known, source: number, target: number): readonly [string, string] | null {
  const host = (rank: number) => plan.ranks.find((entry) => entry.rank === rank)?.host ?? "";
  const [from, to] = [host(source), host(target)];
  return from === to ? null : [from, to];
}

/** undefined: it isn't known, or they are one host. */
export function linkBetween(
  plan: Pick<PlanShown, "host_links">,
  hosts: readonly [string, string],
): HostLinkShown | undefined {
  const pair = [...hosts].sort().join();
  return plan.host_links?.find(({ first, second }) => [first, second].sort().join() === pair);
}

/** `near to far, 1.2 ms each`: the time of a value of so many bytes, or what it takes at least (null: not measured). */
export function costWords(plan: Known, source: number, target: number, bytes: number | null): string | null {
  const hosts = hostsBetween(plan, source, target);
  if (hosts === null) return null;
  const link = linkBetween(plan, hosts);
  const way = strings.placement.fromHostTo(...hosts);
  if (!link) return way;
  const taken = time(link.latency + (bytes ?? 0) / link.bandwidth);
  return `${way}, ${bytes === null ? strings.placement.eachOrMore(taken) : strings.placement.each(taken)}`;
}

/** `1.1 GiB/s, 0.20 ms`: of a link between hosts. */
export function linkWords({ bandwidth, latency }: HostLinkShown): string {
  return `${showBytes(bandwidth)}/s, ${time(latency)}`;
}

/** `0.21 ms`: latencies are mostly below a millisecond. */
function time(seconds: number): string {
  return seconds < 0.00095 ? `${(seconds * 1000).toPrecision(2)} ms` : showSeconds(seconds);
}
