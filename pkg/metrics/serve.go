package metrics

import (
	"fmt"
	"log"
	"net/http"
	"strconv"
	"time"
)

// Timeouts and limits of the endpoint. A scrape is made within milliseconds; the client has the
// rest of writeTimeout to read it.
const (
	readTimeout  = 5 * time.Second
	writeTimeout = 30 * time.Second
	idleTimeout  = 2 * time.Minute // longer than the usual interval of scrapes
	maxHeader    = 8 << 10
)

// maxScrapes is enough for two Prometheus servers that scrape at the same time.
const maxScrapes = 2

// contentType is that of Prometheus' text format.
const contentType = "text/plain; version=0.0.4; charset=utf-8"

// Handler answers with the text of a scrape, or with 500 if there is an error. It limits how many
// scrapes are made at once, whatever number of clients ask.
func Handler(text func() ([]byte, error)) http.Handler {
	scraping := make(chan struct{}, maxScrapes)
	return http.HandlerFunc(func(w http.ResponseWriter, req *http.Request) {
		select {
		case scraping <- struct{}{}:
			defer func() { <-scraping }()
		default:
			w.Header().Set("Retry-After", "1")
			http.Error(w, fmt.Sprintf("%d scrapes are being made already: try again later", maxScrapes), http.StatusServiceUnavailable)
			return
		}
		body, err := text()
		if err != nil {
			http.Error(w, "can't read the metrics: "+err.Error(), http.StatusInternalServerError)
			return
		}
		w.Header().Set("Content-Type", contentType)
		w.Header().Set("Content-Length", strconv.Itoa(len(body)))
		w.Header().Set("Cache-Control", "no-store")
		if req.Method != http.MethodHead {
			_, _ = w.Write(body) // fails if the client is gone
		}
	})
}

// NewServer returns an HTTP server that answers GET and HEAD of /metrics with scrape, and of more,
// by path, with other handlers. It needs no identity. longest is for handlers that take longer
// than a scrape: how long, or 0.
func NewServer(scrape http.Handler, more map[string]http.Handler, longest time.Duration, errorLog *log.Logger) *http.Server {
	mux := http.NewServeMux()
	mux.Handle("GET /metrics", scrape)
	for path, h := range more {
		mux.Handle("GET "+path, h)
	}
	return &http.Server{
		Handler: mux, ErrorLog: errorLog,
		ReadHeaderTimeout: readTimeout, ReadTimeout: readTimeout, WriteTimeout: max(writeTimeout, longest), IdleTimeout: idleTimeout,
		MaxHeaderBytes: maxHeader,
	}
}
