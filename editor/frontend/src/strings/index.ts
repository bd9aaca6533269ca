// Every sentence and label of the page that a person reads, by area. Identifiers and figures stay with their code.
import { canvas } from "./canvas";
import { debug } from "./debug";
import { deploy } from "./deploy";
import { document } from "./document";
import { inspector } from "./inspector";
import { panels } from "./panels";
import { placement } from "./placement";
import { play } from "./play";
import { shell } from "./shell";
import { taps } from "./taps";
import { tasks } from "./tasks";
import { trace } from "./trace";
import { ui } from "./ui";
import { versions } from "./versions";

export const strings = {
  canvas,
  debug,
  deploy,
  document,
  inspector,
  panels,
  placement,
  play,
  shell,
  taps,
  tasks,
  trace,
  ui,
  versions,
};
