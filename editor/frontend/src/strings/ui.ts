// Sentences and labels of widgets shared by all views.

export const ui = {
  // CopyButton.tsx
  copied: "Copied",
  thisBrowserDoesNotLet: "This browser does not let the page copy: select the text and copy it",
  // keys.ts
  undo: "Undo",
  runWhatIsDrawn: "Run what is drawn",
  redo: "Redo",
  saveAVersion: "Save a version",
  findAnything: "Find anything",
  deploy: "Deploy",
  setOrClearABreakpoint: "Set or clear a breakpoint",
  resumeAPausedRunPause: "Resume a paused run, pause a running one",
  stepMakeOneCall: "Step: make one call",
  stepToTheNextIteration: "Step to the next iteration",
  graph: "Graph",
  tasks: "Tasks",
  placement: "Placement",
  play: "Play",
  trace: "Trace",
  focusShowOnlyTheEditor: "Focus: show only the editor",
  thisList: "This list",
  // kit.tsx
  close: "Close",
  // words.ts
  justNow: "just now",
  loopEnded: (loop: string, count: number) => `${loop} ended after ${count}`,
  loopReached: (loop: string, count: number) => `${loop} reached its limit of ${count}`,
  loopGave: (loop: string, reason: string, count: number) => `${loop}: ${reason} after ${count}`,
  playedInTime: (whole: string) => `${whole}, in time`,
  playedLate: (whole: string, times: string, late: string) => `${whole}, with ${times} of ${late} in all`,
  thisIsADeviceLoop: (nodes: string) => `This is a device loop, so the times of ${nodes} inside it are unknown.`,
  thisIsADeviceLoopWithValue: (value: string) => `This is a device loop: each iteration calls ${value}.`,
  itHasPartsOnOther: (inside: string) =>
    `${inside} It has parts on other ranks; the time includes their waits for each other.`,
};
