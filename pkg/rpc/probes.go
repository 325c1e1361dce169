package rpc

import (
	"log"
	"net/http"
	"time"
)

// maxProbes is more than enough for the health probes of one process.
const maxProbes = 256

// probeTimeout limits a probe's request and answer, a line of text each.
const probeTimeout = 2 * time.Second

// ProbeConns suit a listener for health probes. A flood can't keep a probe out, because a new
// connection replaces the oldest one.
func ProbeConns() Conns { return Conns{Max: maxProbes, PerSource: maxProbes / 2, OldestGoes: true} }

// NewProbeServer returns an HTTP server for health probes, which need no identity. A
// connection may make one request, within a few seconds.
func NewProbeServer(handler http.Handler, errorLog *log.Logger) *http.Server {
	s := &http.Server{
		Handler: handler, ErrorLog: errorLog,
		ReadHeaderTimeout: probeTimeout, ReadTimeout: probeTimeout, WriteTimeout: 2 * probeTimeout, IdleTimeout: probeTimeout,
		MaxHeaderBytes: 4 << 10,
	}
	s.SetKeepAlivesEnabled(false)
	return s
}
