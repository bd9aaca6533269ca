// Where a step is after it has been moved. Pure.
import { join, split } from "../../document/pointer";
import type { Pointer } from "../../document/types";
import type { Slot } from "./rows";

/** The slot's list as it is called once the step at `from` is gone. */
function afterRemoval(list: Pointer, from: Pointer): Pointer {
  const at = split(from);
  const index = Number(at.at(-1));
  const parts = split(list);
  const siblings = at.slice(0, -1).every((part, i) => parts[i] === part) && parts.length >= at.length;
  const here = Number(parts[at.length - 1]);
  if (!siblings || here <= index) return list;
  return join(...parts.slice(0, at.length - 1), here - 1, ...parts.slice(at.length));
}

/** The step's pointer after the move. */
export function landed(from: Pointer, slot: Slot): Pointer {
  const list = from.slice(0, from.lastIndexOf("/"));
  const index = Number(from.slice(list.length + 1));
  const moved = slot.list === list && slot.index > index ? slot.index - 1 : slot.index;
  return `${afterRemoval(slot.list, from)}/${moved}`;
}

/** True if the move changes something and doesn't put a block into itself. */
export function isMove(from: Pointer, slot: Slot): boolean {
  return !`${slot.list}/`.startsWith(`${from}/`) && landed(from, slot) !== from;
}
