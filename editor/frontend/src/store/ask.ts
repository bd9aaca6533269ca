// Asking the service for something that it may refuse.
import { ApiError } from "../api/client";
import type { Editor } from "./editor";

/** Do it; what the service refuses is said. Whether it was done. */
export async function ask(editor: Editor, doing: () => Promise<unknown>): Promise<boolean> {
  try {
    await doing();
    return true;
  } catch (error) {
    if (!(error instanceof ApiError)) throw error;
    editor.say(error.problems[0]?.message ?? error.message, "error");
    return false;
  }
}
