package httpapi

import (
	"net/http"
	"slices"
	"strings"

	"github.com/nstance/nstance/pkg/audit"
)

// auditRefusal records a request that the guard refused.
func (a *API) auditRefusal(r *http.Request, caller string, p *Problem) {
	e := eventOf(r, caller)
	e.Outcome, e.Reason = audit.Refused, p.Detail
	a.audit.Record(r.Context(), e)
}

// auditChange records the answer to a change that passed the guard, unless it is a redirect. r has
// the context in which it was served.
func (a *API) auditChange(r *http.Request, caller string, answer *recorder) {
	e := eventOf(r, caller)
	if e.Kind != audit.Change {
		return
	}
	switch q := r.URL.Query(); {
	case q.Get("shard") != "":
		e.Object = "shard " + q.Get("shard")
	case q.Get("all_shards") == "true":
		e.Object = "all shards"
	}
	e.Reason = answer.reason()
	switch status := answer.status; {
	case answer.uncertain() || status >= http.StatusInternalServerError && r.Context().Err() != nil:
		e.Outcome = audit.Unknown
	case status >= http.StatusInternalServerError:
		e.Outcome = audit.Failed
	case status >= http.StatusBadRequest:
		e.Outcome = audit.Refused
	case status >= http.StatusMultipleChoices && status != http.StatusNotModified:
		return
	default:
		e.Outcome = audit.Accepted
	}
	a.audit.Record(r.Context(), e)
}

// uncertain reports whether a shard may have carried out the change although the answer is an
// error: it was not reached, or did not answer in time, and the connection may have broken after
// it was asked.
func (r *recorder) uncertain() bool {
	lost := func(status int) bool {
		return status == http.StatusGatewayTimeout || status == http.StatusServiceUnavailable
	}
	return lost(r.status) || slices.ContainsFunc(r.failed, func(f Failure) bool { return lost(f.Status) })
}

// reason returns what went wrong; empty: nothing.
func (r *recorder) reason() string {
	if r.detail != "" {
		return r.detail
	}
	var all []string
	for _, f := range r.failed {
		all = append(all, "shard "+f.Shard+": "+f.Detail)
	}
	return strings.Join(all, "; ")
}

// eventOf returns the event of a request, without its outcome. The query is left out, since what an
// unknown caller sends may hold a secret.
func eventOf(r *http.Request, caller string) audit.Event {
	e := audit.Event{Kind: audit.Change, Actor: caller, From: r.RemoteAddr, Action: r.Method + " " + r.URL.Path}
	if r.Method == http.MethodGet || r.Method == http.MethodHead || r.Method == http.MethodPost && r.URL.Path == diffPath {
		e.Kind = audit.Call
	}
	if r.TLS != nil && len(r.TLS.PeerCertificates) > 0 {
		e.Claims = []audit.Detail{{Name: "certificate", To: r.TLS.PeerCertificates[0].Subject.String()}}
	}
	return e
}
