import css from "./shell.css?inline";

export const styles = css;
