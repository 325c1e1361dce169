package server_test

import (
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/nstance/nstance/pkg/provider/fake"
	nstancev1 "github.com/nstance/nstance/proto/nstance/v1"
)

// TestRefusalOutlivesTheInstance: of an instance that may not register, the group, the event and
// the reason of its removal say why.
func TestRefusalOutlivesTheInstance(t *testing.T) {
	simulated(t, func(t *testing.T) {
		_, p, id := newborn(t, `"garbage_collection": { "registration_timeout": "1m" },`)
		claimRefused(t, p.claim(id, "kubernetes.default.svc"), "hostname", "not a name of this instance")
		eventually(t, "its end", func() error {
			i, err := p.instance(id)
			if err == nil && i.GetPhase() != nstancev1.InstancePhase_INSTANCE_PHASE_DELETED {
				err = fmt.Errorf("it is %s", i.GetPhase())
			}
			return err
		})
		i, err := p.instance(id)
		if err != nil || !strings.HasPrefix(i.GetReason(), "registration-timeout: the registration of its agent was refused: ") ||
			!strings.Contains(i.GetLastError(), "kubernetes.default.svc") {
			t.Errorf("the instance is %v, %v", i, err)
		}
		var told bool
		for _, e := range p.events(&nstancev1.ListEventsRequest{InstanceId: string(id)}) {
			told = told || strings.Contains(e.GetMessage(), "kubernetes.default.svc")
		}
		if !told {
			t.Error("no event of its removal says why")
		}
	})
}

// TestRefusalsFailTheCreates: a group whose machines may not register says what they are told.
func TestRefusalsFailTheCreates(t *testing.T) {
	simulated(t, func(t *testing.T) {
		s, p, _ := newborn(t, `"garbage_collection": { "registration_timeout": "1m" },`)
		for range 6 { // more than a group may lose at full speed
			for _, id := range s.living() {
				claimRefused(t, p.claim(id, "kubernetes.default.svc"), "hostname", "not a name of this instance")
			}
			time.Sleep(time.Minute + time.Second)
		}
		g, err := p.group("web")
		if err != nil {
			t.Fatal(err)
		}
		if n := p.log.counting("problem", "reason", "CreatesFailing"); n != 1 { // although the names in the refusals differ
			t.Errorf("told %d times that creates fail", n)
		}
		if c := condition(g, "CreatesFailing"); !strings.Contains(c.GetMessage(), "did not register within 1m") ||
			!strings.Contains(c.GetMessage(), `"kubernetes.default.svc" is not a name`) {
			t.Errorf("the group says %v", c)
		}
	})
}

// TestRefusedKeyIsShown: a key of another instance is the instance's last error until it registers with
// one of its own, as agents do at once; so it is no problem.
func TestRefusedKeyIsShown(t *testing.T) {
	simulated(t, func(t *testing.T) {
		s, p, ids := newborns(t)
		key := newKey(t)
		if _, err := p.registerWith(s.nonceOf(ids[0]), key); err != nil {
			t.Fatal(err)
		}
		_, err := p.registerWith(s.nonceOf(ids[1]), key)
		keyTaken(t, err, "public_key", ids[0])
		if i, err := p.instance(ids[1]); err != nil || !strings.Contains(i.GetLastError(), "this key belongs to another instance") {
			t.Errorf("the instance is %v, %v", i, err)
		}
		if n := p.log.count("problem"); n != 0 {
			t.Errorf("told %d times", n)
		}
		if _, err := p.registerWith(s.nonceOf(ids[1]), newKey(t)); err != nil {
			t.Fatal(err)
		}
		if i, err := p.instance(ids[1]); err != nil || i.GetLastError() != "" {
			t.Errorf("the instance is %v, %v", i, err)
		}
	})
}

// TestSpentNonceHidesNothing: the nonce of an instance that has registered changes nothing that is said
// of it or of its group.
func TestSpentNonceHidesNothing(t *testing.T) {
	simulated(t, func(t *testing.T) {
		s, p := running(t, quiet())
		ids := s.living()
		time.Sleep(time.Second) // the first reports are over
		r := &nstancev1.ReportHealthRequest{Sequence: 2, WriteError: "read-only"}
		if err := s.agents.of(ids[0]).stream.Send(r); err != nil {
			t.Fatal(err)
		}
		time.Sleep(time.Second)
		before := p.log.count("problem")
		for range 3 {
			for _, id := range ids {
				if _, err := p.registerWith(s.nonceOf(id), newKey(t)); err == nil {
					t.Fatal("a second key was accepted")
				}
			}
		}
		if n := p.log.count("problem"); n != before {
			t.Errorf("told %d problems, the last %q", n-before, p.log.attr("problem", "problem"))
		}
		if i, err := p.instance(ids[1]); err != nil || i.GetLastError() != "" || i.GetPhase() != nstancev1.InstancePhase_INSTANCE_PHASE_RUNNING {
			t.Errorf("the instance is %v, %v", i, err)
		}
		if err := p.troubled("can't write to its disk"); err != nil {
			t.Error(err)
		}
	})
}

// TestPutOffIsShown: what an agent should try again is the instance's last error, and no problem.
func TestPutOffIsShown(t *testing.T) {
	simulated(t, func(t *testing.T) {
		s, p, ids := newborns(t)
		addr := s.addressesOf(ids[0])[0]
		s.world.Readdress(ids[0])
		p.stop()
		p.ends()
		q := s.start(named("b")).awaitLeading()
		time.Sleep(time.Second) // the list of the takeover
		s.world.FailNext(fake.OpGet, 1, fake.Fault{Err: errors.New("the provider is down")})
		if err := q.claim(ids[0], "", addr); err == nil {
			t.Fatal("an address was taken on faith")
		}
		i, err := q.instance(ids[0])
		if err != nil || !strings.Contains(i.GetLastError(), "was put off: ") || !strings.Contains(i.GetLastError(), "the provider is down") {
			t.Errorf("the instance is %v, %v", i, err)
		}
		if reason := q.log.attr("problem", "reason"); reason == "RegistrationRefused" {
			t.Errorf("told of %q", q.log.attr("problem", "problem"))
		}
	})
}
