package audit

import (
	"log/slog"
	"time"
)

// Kind is the subject of an event.
type Kind string

// Kinds of events.
const (
	Call         Kind = "call"         // any other call
	Change       Kind = "change"       // of a group, an instance or the config
	Handshake    Kind = "handshake"    // TLS handshake; only refused ones
	Registration Kind = "registration" // an identity is issued or renewed
	Revocation   Kind = "revocation"   // an identity is revoked
)

// Outcome is the outcome of an event.
type Outcome string

// Outcomes.
const (
	Accepted Outcome = "accepted" // and durable
	Refused  Outcome = "refused"  // because of the caller, the request, or a limit
	Failed   Outcome = "failed"   // server error
	Found    Outcome = "found"    // a change that was made in object storage, without a server
	Unknown  Outcome = "unknown"  // a change whose call ended before its write was confirmed: it may have been made
)

// None is the Actor of a caller without a verified certificate.
const None = "none"

// Event is one audit event. Its texts may be untrusted; Log bounds them.
type Event struct {
	Time    time.Time // zero: Log sets it
	Kind    Kind
	Outcome Outcome
	Actor   string   // SPIFFE ID of the verified certificate, or the role of an HTTP API's token, or None
	From    string   // address and port
	Action  string   // full method name, or HTTP method and path; for a handshake the listener's name
	Object  string   // kind and name, such as "group default/web"; empty: unknown
	Changes []Detail // changes that were made
	Wanted  []Detail // changes that were refused, failed, or have an unknown outcome
	Claims  []Detail // unverified or verified claims of the actor
	Reason  string   // of a refusal or failure
}

// Detail is a field of an event. From is empty for new values, and in claims.
type Detail struct {
	Name     string
	From, To string
}

// Limits for the line and the Sink of an event.
const (
	MaxText    = 512 // bytes per text
	MaxDetails = 32  // each, of changes, wanted changes, and claims
)

// bounded returns the event with truncated texts and lists.
func (e Event) bounded() Event {
	for _, text := range []*string{&e.Actor, &e.From, &e.Action, &e.Object, &e.Reason} {
		*text = brief(*text)
	}
	e.Changes, e.Wanted, e.Claims = few(e.Changes), few(e.Wanted), few(e.Claims)
	return e
}

func few(details []Detail) []Detail {
	out := make([]Detail, 0, min(len(details), MaxDetails))
	for _, d := range details[:min(len(details), MaxDetails)] {
		out = append(out, Detail{brief(d.Name), brief(d.From), brief(d.To)})
	}
	return out
}

func brief(text string) string { return text[:min(len(text), MaxText)] }

// message returns the message of the event's log line.
func (e Event) message() string {
	switch {
	case e.Outcome == Failed:
		return "a call failed"
	case e.Outcome == Unknown:
		return "a change may have been carried out"
	case e.Outcome == Found:
		return "admitted an operator that no server registered"
	case e.Kind == Handshake:
		return "refused a handshake"
	case e.Outcome == Refused:
		return "refused a call"
	case e.Kind == Registration:
		return "gave out an identity"
	case e.Kind == Revocation:
		return "revoked an identity"
	default:
		return "accepted a change"
	}
}

// level returns the level of the event's log line. A refused stranger is no warning: it takes nothing to cause it.
func (e Event) level() slog.Level {
	switch {
	case e.Outcome == Failed:
		return slog.LevelError
	case e.Outcome == Unknown, e.Outcome == Refused && e.Actor != None:
		return slog.LevelWarn
	default:
		return slog.LevelInfo
	}
}

// durable reports whether the event is a stored change. The store limits their number.
func (e Event) durable() bool { return e.Outcome == Accepted && len(e.Changes) > 0 }

// attrs returns the attributes of the event's log line, without empty ones.
func (e Event) attrs(leftOut int) []slog.Attr {
	attrs := []slog.Attr{
		slog.String("audit", string(e.Kind)), slog.String("caller", e.Actor), slog.String("method", e.Action), slog.String("from", e.From),
	}
	if e.Object != "" {
		attrs = append(attrs, slog.String("object", e.Object))
	}
	if len(e.Changes) > 0 {
		attrs = append(attrs, group("changes", e.Changes))
	}
	if len(e.Wanted) > 0 {
		attrs = append(attrs, group("wanted", e.Wanted))
	}
	if len(e.Claims) > 0 {
		attrs = append(attrs, group("claims", e.Claims))
	}
	if e.Reason != "" {
		attrs = append(attrs, slog.String("reason", e.Reason))
	}
	if leftOut > 0 {
		attrs = append(attrs, slog.Int("left_out", leftOut))
	}
	return attrs
}

func group(name string, details []Detail) slog.Attr {
	attrs := make([]slog.Attr, 0, len(details))
	for _, d := range details {
		text := d.To
		if d.From != "" {
			text = d.From + " -> " + d.To
		}
		attrs = append(attrs, slog.String(d.Name, text))
	}
	return slog.GroupAttrs(name, attrs...)
}
