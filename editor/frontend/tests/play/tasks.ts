// Tasks as the service shows them.
import type { ParamShown, TaskShown } from "../../src/play/model/types";

const number: ParamShown = { type: "number", default: 0.5, min: 0, max: 1, choices: [], description: "" };

export const EDIT: TaskShown = {
  deployment: "shapes",
  name: "edit",
  label: "Edit a picture",
  inputs: {
    image: { modality: "image", many: true, optional: false, description: "The picture to change." },
    instruction: { modality: "text", many: true, optional: false, description: "What to change: `make it blue`." },
    pose: { modality: "state", many: false, optional: true, description: "" },
  },
  outputs: ["image", "preview"],
  params: {
    steps: { type: "integer", default: 50, min: 2, max: 200, choices: [], description: "" },
    scale: number,
    renorm: { type: "string", default: "global", min: null, max: null, choices: ["global", "none"], description: "" },
    think: { type: "boolean", default: false, min: null, max: null, choices: [], description: "" },
    system: { type: "string", default: "Be brief.", min: null, max: null, choices: [], description: "" },
    width: { type: "integer", default: null, min: null, max: null, choices: [], description: "" },
  },
  session: false,
  schema: {},
};

export const PNG = "iVBORw0KGgo=";
