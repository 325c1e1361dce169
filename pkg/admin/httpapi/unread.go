package httpapi

import (
	"net/http"
	"time"
)

// drainTimeout is how long the rest of a body that is not read may take to arrive.
const drainTimeout = time.Second

// unread has a request answered without its body. Otherwise HTTP/1 reads the body before the
// answer, in order to use the connection again. Call it before the answer's header is written.
func unread(w http.ResponseWriter, r *http.Request) {
	if r.ContentLength == 0 || r.ProtoMajor != 1 {
		return
	}
	w.Header().Set("Connection", "close")
	// Not every ResponseWriter supports deadlines; the server's apply otherwise.
	_ = http.NewResponseController(w).SetReadDeadline(time.Now().Add(drainTimeout))
}
