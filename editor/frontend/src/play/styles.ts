import form from "./form/form.css?inline";
import files from "./outputs/files.css?inline";
import play from "./play.css?inline";
import result from "./result.css?inline";
import runs from "./runs.css?inline";

export const styles = [play, form, result, files, runs].join("\n");
