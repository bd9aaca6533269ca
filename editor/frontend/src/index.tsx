// Called by Streamlit for every change of data or theme, always with the same parent; idempotent. The cleanup that was
// returned last runs when the component leaves the page.
import { createRoot, type Root as ReactRoot } from "react-dom/client";
import type { DocumentState } from "./shell/host/emit";
import { guard } from "./shell/host/guard";
import { Root, type Data } from "./shell/Root";
import { isDark } from "./shell/host/theme";
import { styles } from "./styles";

interface Arguments {
  data: Data;
  key: string;
  parentElement: HTMLElement | ShadowRoot;
  setStateValue: (name: string, value: unknown) => void;
  setTriggerValue: (name: string, value: unknown) => void;
}

interface Mounted {
  root: ReactRoot;
  /** The newest call's; Streamlit gives another each time. */
  setStateValue: Arguments["setStateValue"];
  emit: (state: DocumentState) => void;
  unguard: () => void;
  place: HTMLElement;
  style: HTMLStyleElement;
}

const mounted = new WeakMap<Node, Mounted>();

export default function editor({ data, parentElement, setStateValue }: Arguments): () => void {
  const here = mounted.get(parentElement) ?? mount(parentElement, setStateValue);
  here.setStateValue = setStateValue;
  here.root.render(<Root data={data} dark={isDark(here.place)} emit={here.emit} />);
  return () => unmount(parentElement, here);
}

function mount(parent: HTMLElement | ShadowRoot, setStateValue: Arguments["setStateValue"]): Mounted {
  const style = document.createElement("style");
  style.textContent = styles;
  const place = document.createElement("div");
  parent.append(style, place);
  const here: Mounted = {
    root: createRoot(place),
    setStateValue,
    emit: (state) => here.setStateValue("doc", state),
    unguard: guard(place),
    place,
    style,
  };
  mounted.set(parent, here);
  return here;
}

function unmount(parent: HTMLElement | ShadowRoot, here: Mounted): void {
  if (mounted.get(parent) !== here) return;
  mounted.delete(parent);
  here.unguard();
  // React effects' cleanups save, close the socket and stop the timers.
  here.root.unmount();
  here.place.remove();
  here.style.remove();
}
