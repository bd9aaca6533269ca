// Runs in Streamlit's HTML page. It shows a banner when the service doesn't answer or this browser is signed out, as
// Streamlit's own dialog names an internet connection and a command that don't apply here. And it gives Streamlit the
// theme that this browser has chosen.
(() => {
  const { command, port, themes } = document.currentScript.dataset;
  // The page may send itself the messages that Streamlit takes from a page around it.
  window.__streamlit = { HOST_CONFIG: { blockErrorDialogs: true, allowedOrigins: [location.origin] } };

  // ── the theme ───────────────────────────────────────────────────────────────────────────────────

  // `theme.ts` of the frontend writes the choice, and tells of it by an event of the same name.
  const THEME = "walkgraph:theme";
  const LOOKS = JSON.parse(themes);
  const dark = matchMedia("(prefers-color-scheme: dark)");

  function chosen() {
    try {
      return localStorage.getItem(THEME) ?? "System";
    } catch {
      return "System";
    }
  }

  // Where Streamlit looks when a page is loaded: it keeps one for each path.
  try {
    localStorage.setItem(`stActiveTheme-${location.pathname}-v2`, JSON.stringify(chosen()));
  } catch {
    // A browser that keeps nothing has the system's theme.
  }

  function show() {
    const theme = chosen();
    const themeName = theme === "System" ? (dark.matches ? "Dark" : "Light") : theme;
    const message = { stCommVersion: 1, type: "SET_CUSTOM_THEME_CONFIG", themeName, themeInfo: LOOKS[themeName] };
    window.postMessage(message, location.origin);
  }

  addEventListener(THEME, show);
  // Chosen in another tab.
  addEventListener("storage", ({ key }) => key === THEME && show());
  dark.addEventListener("change", () => chosen() === "System" && show());

  // ── the connection ──────────────────────────────────────────────────────────────────────────────

  // A reconnection that is faster than this isn't reported.
  const PATIENCE_MS = 1500;
  const AGAIN_MS = 3000;
  const STYLE = `position: fixed; inset: 12px auto auto 50%; translate: -50%; z-index: 1000100; box-sizing: border-box;
    width: max-content; max-width: min(680px, calc(100vw - 32px)); padding: 12px 16px; border: 1px solid #b97a00;
    border-radius: 8px; background: #fff4d6; color: #3d2c00; box-shadow: 0 4px 16px rgb(0 0 0 / 25%);
    font: 14px/1.5 "Source Sans", sans-serif;`;
  let banner = null;
  let timer;

  const isLocal = /^(localhost|127(\.\d+){3}|\[::1\])$/.test(location.hostname);
  const start = location.port && location.port !== port ? `${command} --port ${location.port}` : command;

  const down = () => [
    strong(`The service at ${location.host} isn't answering. `),
    ...(isLocal ? ["Start it with ", code(start), ". "] : ["Whoever runs the service can start it with ", code("walkgraph up"), ". "]),
    "This page reconnects by itself. Unsaved edits are kept in this browser.",
  ];
  const signedOut = () => [
    strong("This browser is signed out. "),
    ...["Run ", code("walkgraph open"), " and open the address that it prints."],
  ];

  function strong(text) {
    return Object.assign(document.createElement("strong"), { textContent: text });
  }

  function code(text) {
    const made = Object.assign(document.createElement("code"), { textContent: text });
    made.style.cssText = "font-family: monospace; user-select: all; overflow-wrap: anywhere;";
    return made;
  }

  async function isSignedOut() {
    try {
      const answer = await fetch("/studio/_stcore/health", { cache: "no-store" });
      return answer.status === 401 || answer.status === 403;
    } catch {
      return false;
    }
  }

  async function tell(app) {
    const words = (await isSignedOut()) ? signedOut() : down();
    if (isConnected(app)) return;
    const said = words.map((part) => part.textContent ?? part).join("");
    if (banner?.textContent !== said) {
      banner?.remove();
      banner = document.createElement("div");
      banner.setAttribute("role", "alert");
      banner.style.cssText = STYLE;
      banner.append(...words);
      document.body.append(banner);
    }
    timer = setTimeout(tell, AGAIN_MS, app);
  }

  function isConnected(app) {
    return app.dataset.testConnectionState === "CONNECTED";
  }

  function look(app) {
    clearTimeout(timer);
    if (!isConnected(app)) {
      timer = setTimeout(tell, PATIENCE_MS, app);
      return;
    }
    banner?.remove();
    banner = null;
  }

  // Streamlit renders its application once, and reports the state of its connection in an attribute.
  const waiting = new MutationObserver(() => {
    const app = document.querySelector("[data-test-connection-state]");
    if (!app) return;
    waiting.disconnect();
    new MutationObserver(() => look(app)).observe(app, { attributeFilter: ["data-test-connection-state"] });
    look(app);
  });
  waiting.observe(document, { childList: true, subtree: true });
})();
