package server_test

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/nstance/nstance/pkg/fleet"
	"github.com/nstance/nstance/pkg/pki"
	nstancev1 "github.com/nstance/nstance/proto/nstance/v1"
	"google.golang.org/grpc/codes"
)

// audited checks that there is exactly one line about the end of a call, with these texts.
func (p *process) audited(method, message string, texts ...string) (line string) {
	p.t.Helper()
	var lines []string
	for line := range strings.Lines(fmt.Sprint(p.log)) {
		if strings.Contains(line, message) && strings.Contains(line, "/"+method+" ") {
			lines = append(lines, line)
		}
	}
	if len(lines) != 1 {
		p.t.Errorf("%d lines say %q of %s, want 1:\n%s", len(lines), message, method, strings.Join(lines, ""))
		return ""
	}
	for _, text := range texts {
		if !strings.Contains(lines[0], text) {
			p.t.Errorf("%s: no %q in %s", method, text, lines[0])
		}
	}
	return lines[0]
}

// TestAudit: a change is logged with its caller, object, old and new value and source; so are
// refusals, and a registration's claims.
func TestAudit(t *testing.T) {
	simulated(t, func(t *testing.T) {
		s, p, id := newborn(t)
		m, err := p.register(id)
		if err != nil {
			t.Fatal(err)
		}
		p.audited("RegisterAgent", "gave out an identity", "audit=registration", "caller=none", "from=127.0.0.1:",
			`object="agent default/`+string(id)+`"`, "claims.nonce_sha256=", "claims.hostname=", "claims.jti=",
			"claims.public_key_sha256="+pki.PublicKeySHA256(pki.PublicKey(m.key)))

		o, pair := s.operator("default")
		client := p.as(pair)
		caller := "caller=spiffe://" + clusterID + "/default/operator/" + string(o.ID)
		if _, err := client.UpsertGroup(within(t), &nstancev1.UpsertGroupRequest{Key: "web", Size: ptr(int32(2))}); err != nil {
			t.Fatal(err)
		}
		p.audited("UpsertGroup", "accepted a change", "audit=change", caller, "from=127.0.0.1:", `object="group default/web"`,
			`changes.size="1 -> 2"`)
		_, err = client.UpsertGroup(within(t), &nstancev1.UpsertGroupRequest{Key: "none", Size: ptr(int32(2))})
		refused(t, err, codes.NotFound)
		p.audited("UpsertGroup", "refused a call", caller, `object="group default/none"`, "reason=", "wanted.size=\"0 -> 2\"")
		if line := p.audited("UpsertGroup", "accepted a change"); strings.Contains(line, "wanted") {
			t.Errorf("what was carried out is told as wanted, too: %s", line)
		}

		_, err = client.UpsertGroup(within(t), &nstancev1.UpsertGroupRequest{Key: "odd", MaxSurge: ptr("many")})
		refused(t, err, codes.InvalidArgument)
		if line := fmt.Sprint(p.log); !strings.Contains(line, `object="group default/odd"`) {
			t.Error("a change that makes no sense is told without its object")
		}

		made, err := client.CreateInstance(within(t), &nstancev1.CreateInstanceRequest{Group: "web", IdempotencyKey: "k1"})
		if err != nil {
			t.Fatal(err)
		}
		single := `object="instance default/` + made.GetInstance().GetId() + `"`
		p.audited("CreateInstance", "accepted a change", caller, single, "changes.group=web", "changes.idempotency_key=k1")
		target := &nstancev1.DeleteInstanceRequest_Id{Id: made.GetInstance().GetId()}
		if _, err := client.DeleteInstance(within(t), &nstancev1.DeleteInstanceRequest{Target: target}); err != nil {
			t.Fatal(err)
		}
		p.audited("DeleteInstance", "accepted a change", caller, single, `changes.removal_asked="false -> true"`)
		unknown := string(newID(t, "knd"))
		_, err = client.AcknowledgeDrained(within(t), &nstancev1.AcknowledgeDrainedRequest{Id: unknown})
		refused(t, err, codes.NotFound)
		p.audited("AcknowledgeDrained", "refused a call", caller, `object="instance default/`+unknown+`"`)

		s.config["VARS"] = `{ "n": 2 }`
		s.putConfig(shardID)
		if _, err := client.RefreshConfig(within(t), &nstancev1.RefreshConfigRequest{}); err != nil {
			t.Fatal(err)
		}
		p.audited("RefreshConfig", "accepted a change", caller, "object=config", "changes.etag=", " -> ")
	})
}

// TestAuditOfRemovals: after repeats that changed nothing have used up a caller's lines, the removal
// of an instance, by id and by key, and that of an operator still have theirs.
func TestAuditOfRemovals(t *testing.T) {
	simulated(t, func(t *testing.T) {
		s, p := running(t)
		o, pair := s.operator("default")
		other, _ := s.operator("default")
		client := p.as(pair)
		create := func(key string) string {
			made, err := client.CreateInstance(within(t), &nstancev1.CreateInstanceRequest{Group: "web", IdempotencyKey: key})
			if err != nil {
				t.Fatal(err)
			}
			return made.GetInstance().GetId()
		}
		one := create("k1")
		create("k2")
		for range 600 {
			if _, err := client.UpsertGroup(within(t), &nstancev1.UpsertGroupRequest{Key: "web"}); err != nil {
				t.Fatal(err)
			}
		}
		for _, target := range []*nstancev1.DeleteInstanceRequest{
			{Target: &nstancev1.DeleteInstanceRequest_Id{Id: one}},
			{Target: &nstancev1.DeleteInstanceRequest_IdempotencyKey{IdempotencyKey: "k2"}},
		} {
			if _, err := client.DeleteInstance(within(t), target); err != nil {
				t.Fatal(err)
			}
		}
		time.Sleep(time.Second) // a line is written after its caller was answered
		if lines := p.lines("/DeleteInstance "); len(lines) != 2 {
			t.Errorf("two removals left %v", lines)
		} else if !strings.Contains(lines[1], `changes.removal_asked="false -> true"`) {
			t.Errorf("the removal by key left %s", lines[1])
		}
		for range 600 {
			if _, err := client.UpsertGroup(within(t), &nstancev1.UpsertGroupRequest{Key: "web"}); err != nil {
				t.Fatal(err)
			}
		}
		if _, err := client.RemoveOperator(within(t), &nstancev1.RemoveOperatorRequest{Id: string(other.ID)}); err != nil {
			t.Fatal(err)
		}
		time.Sleep(time.Second)
		p.audited("RemoveOperator", "revoked an identity", "audit=revocation", string(other.ID), "/operator/"+string(o.ID),
			`changes.removed="false -> true"`)
	})
}

// TestAuditBeforeTheWrite: a change whose write may not have landed is logged with its object,
// old and new value, as if it had.
func TestAuditBeforeTheWrite(t *testing.T) {
	const unknown = "a change may have been carried out"
	group := func(req *nstancev1.UpsertGroupRequest) func(context.Context, nstancev1.OperatorServiceClient) error {
		return func(ctx context.Context, c nstancev1.OperatorServiceClient) error {
			_, err := c.UpsertGroup(ctx, req)
			return err
		}
	}
	for name, c := range map[string]struct {
		prefix, method string
		call           func(context.Context, nstancev1.OperatorServiceClient) error
		says           []string
	}{
		"a size": {
			"groups/", "UpsertGroup", group(&nstancev1.UpsertGroupRequest{
				Key: "web", Size: ptr(int32(5)), InstanceType: ptr("large"), RolloutPaused: ptr(true),
			}),
			[]string{`object="group default/web"`, `wanted.size="4 -> 5"`, "wanted.instance_type=large", `wanted.rollout_paused="false -> true"`},
		},
		"a new group": {
			"groups/", "UpsertGroup", group(&nstancev1.UpsertGroupRequest{
				Key: "jobs", Template: ptr("knd"), Size: ptr(int32(3)), Create: true, OnDemand: &nstancev1.OnDemand{Namespaces: []string{"*"}, Max: 4},
			}),
			[]string{`object="group default/jobs"`, "wanted.template=knd", `wanted.size="0 -> 3"`,
				`wanted.on_demand="{\"namespaces\":[\"*\"],\"max\":4}"`},
		},
		"a group that goes": {
			"groups/", "DeleteGroup",
			func(ctx context.Context, c nstancev1.OperatorServiceClient) error {
				_, err := c.DeleteGroup(ctx, &nstancev1.DeleteGroupRequest{Key: "batch"})
				return err
			},
			[]string{`object="group default/batch"`, `wanted.size="1 -> 0"`, `wanted.removed="false -> true"`},
		},
		"an override that goes": {
			"groups/", "ResetGroup",
			func(ctx context.Context, c nstancev1.OperatorServiceClient) error {
				_, err := c.ResetGroup(ctx, &nstancev1.ResetGroupRequest{Key: "web"})
				return err
			},
			[]string{`object="group default/web"`, `wanted.size="4 -> 2"`},
		},
		"an instance": {
			"instance/", "CreateInstance",
			func(ctx context.Context, c nstancev1.OperatorServiceClient) error {
				_, err := c.CreateInstance(ctx, &nstancev1.CreateInstanceRequest{Group: "web", InstanceType: ptr("large")})
				return err
			},
			[]string{`object="instance default/knd`, "wanted.group=web", "wanted.instance_type=large"},
		},
		"the config": {
			"applied/", "RefreshConfig",
			func(ctx context.Context, c nstancev1.OperatorServiceClient) error {
				_, err := c.RefreshConfig(ctx, &nstancev1.RefreshConfigRequest{AcceptRemovals: []string{"default/none"}})
				return err
			},
			[]string{"object=config", "wanted.accept_removal=default/none", "wanted.etag="},
		},
	} {
		t.Run(name, simulation(func(t *testing.T) {
			s, p := running(t)
			if _, err := p.upsert(&nstancev1.UpsertGroupRequest{Key: "batch", Template: ptr("knd"), Size: ptr(int32(1))}); err != nil {
				t.Fatal(err)
			}
			p.scale(4)
			s.replace(`"size": 2`, `"size": 1`)
			sent, lift := s.delayed(c.prefix, lateBy)
			defer lift()
			ctx, cancel := p.hangsUp(sent)
			defer cancel()
			if err := c.call(ctx, p.operator("default")); err == nil {
				t.Fatal("it was acknowledged")
			}
			time.Sleep(time.Second) // the write's grace period
			if line := p.audited(c.method, unknown, c.says...); strings.Contains(line, "changes.") {
				t.Errorf("it is told as if it had been carried out: %s", line)
			}
		}))
	}
}

// TestAuditOfOperators: an operator's registration, its renewal, and its end.
func TestAuditOfOperators(t *testing.T) {
	simulated(t, func(t *testing.T) {
		s := newSite(t)
		p := s.start().awaitLeading()
		n := p.enrol("prod")
		object := `object="operator prod/` + string(n.id) + `"`
		p.audited("RegisterOperator", "gave out an identity", "caller=none", object, "claims.nonce_sha256=")
		client := p.as(n.pair)
		next := &nstancev1.OperatorServiceRenewCertificateRequest{PublicKey: publicPEM(t, newKey(t))}
		if _, err := client.RenewCertificate(within(t), next); err != nil {
			t.Fatal(err)
		}
		p.audited("RenewCertificate", "gave out an identity", object, "changes.serial=", "changes.public_key_sha256=")
		if _, err := remove(t, p.operator("prod"), n.id); err != nil {
			t.Fatal(err)
		}
		p.audited("RemoveOperator", "revoked an identity", "audit=revocation", object)
		_, err := client.ListGroups(within(t), &nstancev1.ListGroupsRequest{})
		refused(t, err, codes.Unauthenticated)
		p.audited("ListGroups", "refused a call", "caller=spiffe://"+clusterID+"/prod/operator/"+string(n.id), "was removed")
	})
}

// TestAuditOfHandshakes: a certificate of a foreign CA that claims to be an operator of this
// cluster is logged by each listener that requests one.
func TestAuditOfHandshakes(t *testing.T) {
	simulated(t, func(t *testing.T) {
		s := newSite(t)
		p := s.start().awaitLeading()
		strange, err := pki.NewCA(pki.CAConfig{Cluster: clusterID, Key: newKey(t), Now: time.Now(), Random: rand.Reader})
		if err != nil {
			t.Fatal(err)
		}
		id := newID(t, fleet.OperatorKind)
		pair := issue(t, strange, pki.RoleOperator, "default", id, time.Hour)
		e := pki.Endpoint{Cluster: clusterID, Source: pki.NewSource(s.trust().Bundle, pair), Now: time.Now}
		for name, addr := range map[string]string{
			"operator": p.operatorAddr(), "agent": p.agentAddr(), "election": p.addr("serving", "election"),
		} {
			if _, err := s.handshake("10.0.0.9", addr, e.Client("127.0.0.1", shardID)); err != nil {
				t.Fatal(err) // the server responds after that
			}
			eventually(t, "a line about the handshake with "+name, func() error {
				for line := range strings.Lines(fmt.Sprint(p.log)) {
					if strings.Contains(line, "refused a handshake") && strings.Contains(line, "method="+name+" from=10.0.0.9:") &&
						strings.Contains(line, "caller=none") && strings.Contains(line, "/default/operator/"+string(id)) {
						return nil
					}
				}
				return errors.New("there is none")
			})
		}
	})
}
