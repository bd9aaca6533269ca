// How a wire goes between ranks, in words. Pure.
import type { PlanShown, RouteShown } from "../../messages/answers";
import type { Traffic } from "../../telemetry/flows";
import { showBytes } from "../../ui/words";
import { strings } from "../../strings";

/** The planned way of an edge from one rank to another; null: it stays on one, or there is no plan. */
export function crossing(plan: PlanShown | null, walk: string, index: number): RouteShown | null {
  const pointer = `/walks/${walk}/edges/${index}`;
  return plan?.routes.find((route) => route.pointer === pointer && route.source !== route.target) ?? null;
}

/** `rank 0 → 1 · shm · 12.3 MiB/s`; empty where nothing goes between ranks. */
export function trafficWords(traffic: Traffic | null, planned: Omit<RouteShown, "pointer"> | null): string {
  const way = traffic ?? planned;
  if (!way) return "";
  const parts = [strings.canvas.rank(way.source, way.target), way.transport];
  if (traffic)
    parts.push(traffic.rate > 0 ? `${showBytes(traffic.rate)}/s` : strings.canvas.inTotal(showBytes(traffic.nbytes)));
  return parts.join(" · ");
}
