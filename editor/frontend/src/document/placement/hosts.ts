// The hosts of ranks: named by a rank itself, or by a group for all of its ranks. Pure.
import type { Group, PlacementDocument } from "./schema.generated";

/** In place of a host's name: the plan chooses the host. */
export const ANY = "any";

/** The host that a rank names, or else the first of its groups that names one, or ANY; null: the one that plans. */
export function hostOf(placement: PlacementDocument, rank: number): string | null {
  const own = placement.ranks.find((entry) => entry.rank === rank)?.host;
  return own ?? placement.groups.find((group) => group.host != null && group.ranks.includes(rank))?.host ?? null;
}

/** A rank on another host (null: the one that plans). A group that named its host leaves that to its other ranks. */
export function setHost(placement: PlacementDocument, rank: number, host: string | null): PlacementDocument {
  if (hostOf(placement, rank) === host) return placement;
  const naming = (group: Group) => group.host != null && group.ranks.includes(rank);
  const left = new Set(placement.groups.filter(naming).flatMap((group) => group.ranks));
  const named = (other: number) => (other === rank ? host : hostOf(placement, other));
  return {
    ...placement,
    groups: placement.groups.map((group) => {
      if (!naming(group)) return group;
      const { host: _, ...rest } = group;
      return rest;
    }),
    ranks: placement.ranks.map((entry) => {
      if (entry.rank !== rank && !left.has(entry.rank)) return entry;
      const { host: _, ...rest } = entry;
      const name = named(entry.rank);
      return name === null ? rest : { ...rest, host: name };
    }),
  };
}
