import find from "./find.css?inline";
import inspector from "./inspector.css?inline";
import panels from "./panels.css?inline";

export const styles = [panels, inspector, find].join("\n");
