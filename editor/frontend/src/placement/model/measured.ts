// How a value goes from rank to rank, in words: its transport, and its bytes once values have gone over.
import { flows } from "../../telemetry/activity";
import { split } from "../../document/pointer";
import { showBytes } from "../../ui/words";
import type { Crossing } from "./crossings";

/** `shm · 1.2 MiB`; `shm` alone before anything has gone over. */
export function measuredWords({
  transport,
  pointer,
  walk,
}: Pick<Crossing, "transport" | "pointer" | "walk">): string {
  const bytes = bytesOf(pointer, walk);
  return bytes === null ? transport : `${transport} · ${showBytes(bytes)}`;
}

/** Mean bytes of a value on an edge of a Walk; null where none has gone over, or it is no such edge. */
export function bytesOf(pointer: string, walk: string | null): number | null {
  const [section, , list, index] = split(pointer);
  if (walk === null || section !== "walks" || list !== "edges") return null;
  const traffic = flows.traffic(walk, Number(index));
  return traffic && traffic.count > 0 ? traffic.nbytes / traffic.count : null;
}
