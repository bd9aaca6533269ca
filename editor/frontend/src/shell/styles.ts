import settings from "./settings.css?inline";
import shell from "./shell.css?inline";

export const styles = [shell, settings].join("\n");
