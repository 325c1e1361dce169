package rpc

import (
	"log"
	"net/http"
	"time"
)

// maxProbes is plenty for whatever asks one process whether it is well.
const maxProbes = 256

// probeTimeout is for each of a probe's request and answer, a line of text each.
const probeTimeout = 2 * time.Second

// ProbeConns suit a listener for health probes. A flood can't keep a probe out:
// each newcomer has the place of whatever has been there longest.
func ProbeConns() Conns { return Conns{Max: maxProbes, PerSource: maxProbes / 2, OldestGoes: true} }

// NewProbeServer makes an HTTP server for health probes, which need no identity.
// A connection has one request and a few seconds.
func NewProbeServer(handler http.Handler, errorLog *log.Logger) *http.Server {
	s := &http.Server{
		Handler: handler, ErrorLog: errorLog,
		ReadHeaderTimeout: probeTimeout, ReadTimeout: probeTimeout, WriteTimeout: 2 * probeTimeout, IdleTimeout: probeTimeout,
		MaxHeaderBytes: 4 << 10,
	}
	s.SetKeepAlivesEnabled(false)
	return s
}
