import css from "./tasks.css?inline";

export const styles = css;
