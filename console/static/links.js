// Where each port of the lab's machine is forwarded under a name of its own (8080 as NAME-8080.app.github.dev), the links
// to 127.0.0.1 would lead to the reader's own machine. They get the page's name, with their port in it.
"use strict";

const HOST_WITH_PORT = /^(?:\d{4,5}(?=-)|([^.]*-)\d{4,5}(?=\.))/;

for (const link of document.querySelectorAll("nav a")) {
  const to = new URL(link.href);
  if (location.port === "" && to.hostname === "127.0.0.1" && HOST_WITH_PORT.test(location.hostname)) {
    const host = location.hostname.replace(HOST_WITH_PORT, (_, name = "") => name + to.port);
    link.href = `${location.protocol}//${host}${to.pathname}${to.search}`;
  }
}
