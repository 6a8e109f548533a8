/** Routes. The address contains the whole state of a page, so links, reload and the back button work. */
import { useEffect, useState } from "preact/hooks";

export type Route =
  | { page: "sessions" }
  | { page: "session"; id: string; search: URLSearchParams }
  | { page: "compare"; left: string; right: string }
  | { page: "approvals" }
  | { page: "costs" }
  | { page: "agents"; name: string | undefined; turn: string | undefined }
  | { page: "access" }
  | { page: "server" }
  | { page: "nowhere" };

/** Returns the route of an address. */
export function route(address: URL): Route {
  const [first, second, ...rest] = address.pathname.split("/").filter(Boolean).map(decodeURIComponent);
  if (rest.length > 0) return { page: "nowhere" };
  switch (first) {
    case undefined:
    case "sessions":
      return second === undefined ? { page: "sessions" } : { page: "session", id: second, search: address.searchParams };
    case "compare": {
      const [left, right] = [address.searchParams.get("left"), address.searchParams.get("right")];
      return left && right ? { page: "compare", left, right } : { page: "nowhere" };
    }
    case "approvals":
      return { page: "approvals" };
    case "costs":
      return { page: "costs" };
    case "agents":
      return { page: "agents", name: second, turn: address.searchParams.get("turn") ?? undefined };
    case "access":
      return { page: "access" };
    case "server":
      return { page: "server" };
    default:
      return { page: "nowhere" };
  }
}

const MOVED = "outlast-moved";

/** Navigates to another page. */
export function go(to: string): void {
  if (to !== location.pathname + location.search) history.pushState(undefined, "", to);
  dispatchEvent(new Event(MOVED));
}

/** Returns the current route and follows navigation. Links within the console do not reload the page. */
export function useRoute(): Route {
  const [address, setAddress] = useState(location.href);
  useEffect(() => {
    const moved = () => setAddress(location.href);
    const clicked = (event: MouseEvent) => {
      const link = (event.target as Element | null)?.closest("a");
      const plain = event.button === 0 && !event.metaKey && !event.ctrlKey && !event.shiftKey && !event.altKey;
      if (!link || !plain || link.target || link.origin !== location.origin || link.hasAttribute("download")) return;
      if (route(new URL(link.href)).page === "nowhere") return;
      event.preventDefault();
      go(link.pathname + link.search);
    };
    addEventListener("popstate", moved);
    addEventListener(MOVED, moved);
    addEventListener("click", clicked);
    return () => {
      removeEventListener("popstate", moved);
      removeEventListener(MOVED, moved);
      removeEventListener("click", clicked);
    };
  }, []);
  return route(new URL(address));
}
