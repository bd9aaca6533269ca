import css from "./debug.css?inline";

export const styles = css;
