import css from "./versions.css?inline";

export const styles = css;
