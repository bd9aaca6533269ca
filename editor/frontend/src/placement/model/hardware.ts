// What to plan for instead of what is free now, as the service reads it. Pure.

/** The hosts of the service's cluster, or its machine, as if nothing ran there. */
export const CLUSTER = "cluster";

export interface Assumed {
  hosts: number;
  /** GPUs of each. */
  count: number;
  gigabytes: number;
}

/** Assumed hosts with their GPUs, or GPUs of one; null: it is no such text. */
export function parseHardware(text: string): Assumed | null {
  const match = /^(?:(\d{1,3}) hosts x )?(\d{1,3}) ?[x×] ?(\d{1,5}) ?GB$/i.exec(text.trim());
  const [hosts, count, gigabytes] = [match?.[1] ?? 1, match?.[2], match?.[3]].map(Number) as [number, number, number];
  return match && hosts >= 1 && count >= 1 && gigabytes >= 1 ? { hosts, count, gigabytes } : null;
}

export function hardwareText({ hosts, count, gigabytes }: Assumed): string {
  return `${hosts > 1 ? `${hosts} hosts x ` : ""}${count}x${gigabytes}GB`;
}
