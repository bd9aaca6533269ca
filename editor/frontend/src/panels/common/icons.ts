// One picture for each kind of thing, the same in every panel.
import {
  Boxes,
  Cable,
  CircleAlert,
  Columns2,
  Frame as FrameIcon,
  GitFork,
  HardDrive,
  ListOrdered,
  LogIn,
  LogOut,
  type LucideIcon,
  Package,
  Play,
  Repeat2,
  Rows3,
  StickyNote,
  Waves,
  Workflow,
} from "lucide-react";

export const CONTAINER_ICONS: Readonly<Record<string, LucideIcon>> = {
  loop: Repeat2,
  parallel: Columns2,
  sequence: Rows3,
  fork: GitFork,
  stream: Waves,
  note: StickyNote,
  frame: FrameIcon,
};

export const KIND_ICONS: Readonly<Record<string, LucideIcon>> = {
  ...CONTAINER_ICONS,
  use: Package,
  node: Package,
  components: Boxes,
  walk: Workflow,
  walks: Workflow,
  streams: Waves,
  task: ListOrdered,
  tasks: ListOrdered,
  problem: CircleAlert,
  in: LogIn,
  out: LogOut,
  edge: Cable,
  state: HardDrive,
  command: Play,
};
