// The editor fills the window below Streamlit's navigation, whatever the page around it pads; and in focus mode all of
// it. Streamlit's page is outside of our shadow root, so its frame is changed by one style element while we are shown.

const FRAME = `
[data-testid="stMainBlockContainer"]:has([data-testid^="stBidiComponent"]) {
  padding: var(--walkgraph-top, 0px) 0 0;
  max-width: none;
}
[data-testid="stMain"]:has([data-testid^="stBidiComponent"]) { overflow: hidden; }
`;
const HEADER = '[data-testid="stHeader"]';
const MARK = "data-walkgraph-frame";

/** Keep the element as high as what the window has left below its top. Returns how to stop. */
export function fill(element: HTMLElement): () => void {
  const page = element.ownerDocument;
  const release = frame(page);
  const measure = () => {
    // The header lies over the page: its height is what the page must leave free.
    const header = page.querySelector(HEADER)?.getBoundingClientRect().bottom ?? 0;
    page.documentElement.style.setProperty("--walkgraph-top", `${Math.max(0, header)}px`);
    const top = Math.max(0, element.getBoundingClientRect().top);
    element.style.height = `${Math.max(320, window.innerHeight - top)}px`;
  };
  measure();
  const later = requestAnimationFrame(measure);
  const observer = new ResizeObserver(measure);
  // The content above can change its height while the window's stays the same.
  const watched = [page.querySelector(HEADER), hostOf(element)?.closest('[data-testid="stMainBlockContainer"]')];
  for (const above of watched) if (above) observer.observe(above);
  window.addEventListener("resize", measure);
  return () => {
    cancelAnimationFrame(later);
    observer.disconnect();
    window.removeEventListener("resize", measure);
    release();
  };
}

/** Show the element above everything in the window, Streamlit's own bars too. Returns how to go back. */
export function cover(element: HTMLElement): () => void {
  element.popover = "manual";
  element.showPopover();
  return () => {
    element.hidePopover();
    element.popover = null;
  };
}

function hostOf(element: Element): Element | null {
  const root = element.getRootNode();
  return root instanceof ShadowRoot ? root.host : element.parentElement;
}

let frames = 0;

function frame(page: Document): () => void {
  frames += 1;
  if (!page.head.querySelector(`[${MARK}]`)) {
    const style = page.createElement("style");
    style.setAttribute(MARK, "");
    style.textContent = FRAME;
    page.head.append(style);
  }
  return () => {
    frames -= 1;
    if (frames > 0) return;
    page.head.querySelector(`[${MARK}]`)?.remove();
    page.documentElement.style.removeProperty("--walkgraph-top");
  };
}
