package history

import (
	"strings"
	"unicode"

	"github.com/nstance/nstance/pkg/audit"
	"github.com/nstance/nstance/pkg/fleet"
)

// Kinds of objects of audit events.
const (
	ofGroup    = "group"
	ofInstance = "instance"
	ofKey      = "idempotency_key"
	ofOperator = "operator"
	ofConfig   = "config"
)

// Changed returns the event of an audited call of an operator; false if it changed nothing, or
// nothing that is told here: what agents do, and renewals of certificates. Of an instance only the
// tenant is known, not the group.
func Changed(a audit.Event) (fleet.Event, bool) {
	service, method, _ := strings.Cut(strings.TrimPrefix(a.Action, "/nstance.v1."), "/")
	kind, rest, _ := strings.Cut(a.Object, " ")
	tenant, name, _ := strings.Cut(rest, "/")
	details := a.Changes
	if a.Outcome == audit.Unknown && len(details) == 0 {
		details = a.Wanted
	}
	if !isChange(a, service, kind) || len(details) == 0 && (kind == ofGroup || kind == ofConfig) { // it is as requested already
		return fleet.Event{}, false
	}
	e := fleet.Event{At: a.Time, Kind: fleet.EventChange, Tenant: tenant, Actor: a.Actor, Reason: words(method, "-")}
	for _, d := range details {
		e.Changes = append(e.Changes, fleet.Change{Name: d.Name, From: d.From, To: d.To})
	}
	switch kind {
	case ofGroup:
		e.Group = name
	case ofInstance:
		e.Instance = fleet.InstanceID(name)
	case ofOperator, ofKey:
	case ofConfig:
		e.Tenant = ""
	default:
		return fleet.Event{}, false
	}
	e.Message = sentence(method, kind, name, e.Changes)
	if a.Outcome == audit.Unknown {
		e.Message += "; the outcome is unknown: it may have been carried out"
	}
	return e, true
}

// isChange reports whether a call of an operator changed something, or may have, or registered it.
func isChange(a audit.Event, service, kind string) bool {
	switch {
	case a.Outcome != audit.Accepted && a.Outcome != audit.Unknown:
		return false
	case service == "RegistrationService":
		return kind == ofOperator
	default:
		return service == "OperatorService" && a.Kind != audit.Registration // a renewal
	}
}

// sentence says what a call did.
func sentence(method, kind, name string, changes []fleet.Change) string {
	var text string
	switch method {
	case "UpsertGroup":
		text = "group " + name + " was changed"
	case "DeleteGroup":
		text = "the deletion of group " + name + " was requested"
	case "ResetGroup":
		text = "group " + name + " was reset"
	case "AbortRollout":
		text = "the rollout of group " + name + " was aborted"
	case "RetryRollout":
		text = "the rollout of group " + name + " was retried"
	case "RefreshConfig":
		text = "the static config was replaced"
	case "CreateInstance":
		text = "an on-demand instance was requested"
	case "DeleteInstance":
		text = "the removal of " + strings.ReplaceAll(kind, "_", " ") + " " + name + " was requested"
	case "AcknowledgeDrained":
		text = "the drain was acknowledged"
	case "RegisterOperator":
		text = "operator " + name + " registered"
	case "RemoveOperator":
		text = "operator " + name + " was removed"
	default:
		text = kind + " " + name + ": " + words(method, " ")
	}
	if what := described(changes); what != "" {
		return text + ": " + what
	}
	return text
}

// described says what changed, without the revision, which always does.
func described(changes []fleet.Change) string {
	var what []string
	for _, c := range changes {
		switch {
		case c.Name == "revision":
		case c.From == "":
			what = append(what, c.Name+" "+c.To)
		default:
			what = append(what, c.Name+" "+c.From+" -> "+c.To)
		}
	}
	return strings.Join(what, ", ")
}

// words returns the words of a method's name in lower case.
func words(method, separator string) string {
	var out strings.Builder
	for n, r := range method {
		if unicode.IsUpper(r) && n > 0 {
			out.WriteString(separator)
		}
		out.WriteRune(unicode.ToLower(r))
	}
	return out.String()
}
