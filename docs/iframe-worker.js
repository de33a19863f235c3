/* Search from a file: browsers refuse workers under file://, so the search worker runs in a hidden frame. */
if (location.protocol === "file:") {
  window.Worker = class extends EventTarget {
    constructor(url) {
      super()
      const frame = document.createElement("iframe")
      frame.hidden = true
      document.body.appendChild(frame)
      const inside = frame.contentWindow
      const base = new URL(url, location.href)
      inside.postMessage = data => this.dispatchEvent(new MessageEvent("message", { data }))
      inside.importScripts = (...urls) => urls.reduce((before, next) => before.then(() => load(next)), Promise.resolve())
      const load = source => new Promise(loaded => {
        const script = inside.document.createElement("script")
        script.src = new URL(source, base).href
        script.onload = loaded
        inside.document.body.appendChild(script)
      })
      this.ready = load(base.href)
      this.inside = inside
      this.frame = frame
    }

    postMessage(data) {
      this.ready.then(() => this.inside.dispatchEvent(new MessageEvent("message", { data })))
    }

    terminate() {
      this.frame.remove()
    }
  }
}
