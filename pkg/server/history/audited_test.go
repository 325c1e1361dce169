package history_test

import (
	"strings"
	"testing"

	"github.com/nstance/nstance/pkg/audit"
	"github.com/nstance/nstance/pkg/fleet"
	"github.com/nstance/nstance/pkg/server/history"
)

// TestChanged: the accepted changes of operators are events, with who, what, from and to.
func TestChanged(t *testing.T) {
	size := []audit.Detail{{Name: "size", From: "5", To: "3"}, {Name: "revision", From: "1", To: "2"}}
	for name, c := range map[string]struct {
		audit         audit.Event
		of            string
		reason, words string
	}{
		"upsert":      {change("UpsertGroup", "group prod/web", size), "prod/web/", "upsert-group", "group web was changed: size 5 -> 3"},
		"nothing new": {change("UpsertGroup", "group prod/web", nil), "", "", ""},
		"config": {
			change("RefreshConfig", "config", []audit.Detail{{Name: "etag", To: "b"}}), "//", "refresh-config",
			"the static config was replaced: etag b",
		},
		"same config": {change("RefreshConfig", "config", nil), "", "", ""},
		"delete": {
			change("DeleteInstance", "instance prod/knd1", nil), "prod//knd1", "delete-instance", "the removal of instance knd1 was requested",
		},
		"delete by key": {
			change("DeleteInstance", "idempotency_key prod/a/b c", nil), "prod//", "delete-instance",
			"the removal of idempotency key a/b c was requested",
		},
		"acknowledged": {
			change("AcknowledgeDrained", "instance prod/knd1", nil), "prod//knd1", "acknowledge-drained", "the drain was acknowledged",
		},
		"removed":        {change("RemoveOperator", "operator prod/opr1", nil), "prod//", "remove-operator", "operator opr1 was removed"},
		"unknown object": {change("UpsertGroup", "", size), "", "", ""},
	} {
		t.Run(name, func(t *testing.T) {
			e, ok := history.Changed(c.audit)
			switch of := e.Tenant + "/" + e.Group + "/" + string(e.Instance); {
			case ok != (c.of != ""):
				t.Errorf("told: %t", ok)
			case ok && (of != c.of || e.Reason != c.reason || e.Message != c.words || e.Kind != fleet.EventChange || e.Actor != "spiffe://x"):
				t.Errorf("%+v", e)
			case ok && len(e.Changes) != len(c.audit.Changes):
				t.Errorf("changes: %v", e.Changes)
			}
		})
	}
}

func change(method, object string, changes []audit.Detail) audit.Event {
	return audit.Event{
		Kind: audit.Change, Outcome: audit.Accepted, Actor: "spiffe://x", Action: "/nstance.v1.OperatorService/" + method, Object: object,
		Changes: changes,
	}
}

// TestChangedOutcomes: what may have been carried out is told as that, and what was refused, failed,
// renewed or done by an agent is not.
func TestChangedOutcomes(t *testing.T) {
	e := change("UpsertGroup", "group prod/web", nil)
	e.Outcome, e.Wanted = audit.Unknown, []audit.Detail{{Name: "size", From: "1", To: "2"}}
	if told, ok := history.Changed(e); !ok || len(told.Changes) != 1 || !strings.Contains(told.Message, "may have been carried out") {
		t.Errorf("%+v", told)
	}
	for _, e := range []audit.Event{
		{Kind: audit.Change, Outcome: audit.Refused, Action: "/nstance.v1.OperatorService/UpsertGroup", Object: "group prod/web"},
		{Kind: audit.Change, Outcome: audit.Failed, Action: "/nstance.v1.OperatorService/UpsertGroup", Object: "group prod/web"},
		{Kind: audit.Change, Outcome: audit.Accepted, Action: "/nstance.v1.AgentService/SubmitPublicKeys", Object: "instance knd1"},
		{Kind: audit.Registration, Outcome: audit.Accepted, Action: "/nstance.v1.AgentService/RenewCertificate", Object: "agent prod/knd1"},
		{Kind: audit.Registration, Outcome: audit.Accepted, Action: "/nstance.v1.OperatorService/RenewCertificate", Object: "operator prod/opr1"},
		{Kind: audit.Registration, Outcome: audit.Accepted, Action: "/nstance.v1.RegistrationService/RegisterAgent", Object: "agent prod/knd1"},
		{Kind: audit.Handshake, Outcome: audit.Refused, Action: "operator"},
	} {
		if told, ok := history.Changed(e); ok {
			t.Errorf("%+v", told)
		}
	}
	registered := audit.Event{
		Kind: audit.Registration, Outcome: audit.Accepted, Action: "/nstance.v1.RegistrationService/RegisterOperator",
		Object: "operator prod/opr1",
	}
	if told, ok := history.Changed(registered); !ok || told.Tenant != "prod" || told.Message != "operator opr1 registered" {
		t.Errorf("%+v", told)
	}
}

// FuzzChanged: any object and any method is told as one of the tenant that it names, or not at all.
func FuzzChanged(f *testing.F) {
	f.Add("UpsertGroup", "group prod/web")
	f.Add("", "idempotency_key prod/\x00/")
	f.Fuzz(func(t *testing.T, method, object string) {
		e, ok := history.Changed(change(method, object, []audit.Detail{{Name: method, From: object, To: method}}))
		_, rest, _ := strings.Cut(object, " ")
		if tenant, _, _ := strings.Cut(rest, "/"); ok && e.Tenant != tenant && object != "config" && !strings.HasPrefix(object, "config ") {
			t.Errorf("%q is told to tenant %q", object, e.Tenant)
		}
	})
}
