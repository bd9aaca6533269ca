import details from "./details.css?inline";
import lanes from "./board/lanes.css?inline";
import placement from "./placement.css?inline";

export const styles = [placement, lanes, details].join("\n");
