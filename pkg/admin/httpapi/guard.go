package httpapi

import (
	"context"
	"fmt"
	"mime"
	"net"
	"net/http"
	"slices"
	"strings"

	"github.com/nstance/nstance/pkg/audit"
	"github.com/nstance/nstance/pkg/tracing"
)

// maxBody is the limit of a request's body, in bytes.
const maxBody = 1 << 20

// ServeHTTP implements http.Handler: it guards the operations.
func (a *API) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	secure(w.Header())
	changes := r.Method != http.MethodGet && r.Method != http.MethodHead
	caller, p := a.refusal(w, r, changes)
	if p != nil {
		a.auditRefusal(r, caller, p)
		unread(w, r)
		p.write(w)
		return
	}
	ctx := tracing.Remote(r.Context(), r.Header.Get(tracing.Header))
	if r.URL.Path != eventsPath {
		limited, cancel := context.WithTimeout(ctx, a.cfg.Timeout)
		defer cancel()
		ctx = limited
	}
	r = r.WithContext(ctx)
	if !changes {
		unread(w, r)
		a.mux.ServeHTTP(w, r)
		return
	}
	recorded := &recorder{ResponseWriter: w, status: http.StatusOK}
	a.mux.ServeHTTP(recorded, r)
	a.auditChange(r, caller, recorded)
}

// secure has a browser load nothing but what this program serves, and keep nothing.
func secure(h http.Header) {
	h.Set("Content-Security-Policy", "default-src 'none'; style-src 'self'; base-uri 'none'; form-action 'none'; frame-ancestors 'none'")
	h.Set("X-Content-Type-Options", "nosniff")
	h.Set("Referrer-Policy", "no-referrer")
	h.Set("Cache-Control", "no-store")
}

// refusal returns why a request is not served, or nil, and the caller for the audit.
func (a *API) refusal(w http.ResponseWriter, r *http.Request, changes bool) (caller string, p *Problem) {
	if !a.hosts(r) {
		return audit.None, problem(http.StatusMisdirectedRequest, fmt.Sprintf("Host: %.200q is not a name of this API: "+
			"want one of %s, or add it with --host", r.Host, strings.Join(a.cfg.Hosts, ", ")))
	}
	if a.public[r.URL.Path] {
		return audit.None, nil
	}
	caller, mayChange, err := a.cfg.Access.of(r.Header.Get("Authorization"), a.cfg.Logger)
	switch {
	case err != nil:
		w.Header().Set("WWW-Authenticate", "Bearer")
		return caller, problem(http.StatusUnauthorized, err.Error())
	case !changes:
		return caller, nil
	case !mayChange:
		return caller, problem(http.StatusForbidden, "the token is read-only: it can't change anything")
	}
	return caller, a.unsafe(r)
}

// unsafe returns why a change is refused, or nil.
func (a *API) unsafe(r *http.Request) *Problem {
	if err := http.NewCrossOriginProtection().Check(r); err != nil {
		return problem(http.StatusForbidden, fmt.Sprintf("Origin: %.200q: a page of another origin can't change anything",
			r.Header.Get("Origin")))
	}
	media, _, err := mime.ParseMediaType(r.Header.Get("Content-Type"))
	if bodied := r.Method != http.MethodDelete || r.ContentLength != 0; bodied && (err != nil || media != "application/json") {
		return problem(http.StatusUnsupportedMediaType, fmt.Sprintf("Content-Type: %.80q is not valid: want application/json",
			r.Header.Get("Content-Type")))
	}
	if r.ContentLength > maxBody {
		return problem(http.StatusRequestEntityTooLarge, fmt.Sprintf("the body has %d bytes: want at most %d", r.ContentLength, maxBody))
	}
	return nil
}

// hosts reports whether the request was sent to a name of this API: a web page whose name was
// made to resolve to this address was not. An address that the connection was made to is none
// that a page could have.
func (a *API) hosts(r *http.Request) bool {
	host := hostOf(r.Host)
	if slices.ContainsFunc(a.cfg.Hosts, func(name string) bool { return strings.EqualFold(name, host) }) {
		return true
	}
	local, ok := r.Context().Value(http.LocalAddrContextKey).(net.Addr)
	ip := net.ParseIP(host)
	return ok && ip != nil && ip.Equal(net.ParseIP(hostOf(local.String())))
}

// hostOf returns an address without its port and brackets.
func hostOf(addr string) string {
	if host, _, err := net.SplitHostPort(addr); err == nil {
		return host
	}
	return strings.TrimSuffix(strings.TrimPrefix(addr, "["), "]")
}

// recorder knows what the audit needs of an answer.
type recorder struct {
	http.ResponseWriter
	status int
	detail string    // of a problem
	failed []Failure // of several shards
}

// WriteHeader implements http.ResponseWriter.
func (r *recorder) WriteHeader(status int) {
	r.status = status
	r.ResponseWriter.WriteHeader(status)
}

// Unwrap is used by http.ResponseController.
func (r *recorder) Unwrap() http.ResponseWriter { return r.ResponseWriter }
