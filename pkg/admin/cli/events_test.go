package cli_test

import (
	"context"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/nstance/nstance/pkg/admin/cli"
	nstancev1 "github.com/nstance/nstance/proto/nstance/v1"
	"google.golang.org/protobuf/types/known/timestamppb"
)

type happened = row[*nstancev1.Event]

const (
	oldInstance = "knd01m7y199gze3dr8samkjd054bp"
	newInstance = "knd01m7y19apkenaskp9fvc72c4st"
	webOperator = "spiffe://example/default/operator/opr01h455vb4pex5vsknk084sn02q"
)

// eventState is the events of a shard.
type eventState struct {
	events  []*nstancev1.Event
	missing bool
	asked   []*nstancev1.ListEventsRequest
	follows []*nstancev1.WatchEventsRequest
}

// ListEvents implements OperatorServiceServer, with one event on a page.
func (s *shard) ListEvents(_ context.Context, req *nstancev1.ListEventsRequest) (*nstancev1.ListEventsResponse, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.asked = append(s.asked, req)
	n, _ := strconv.Atoi(req.GetPageToken())
	resp := &nstancev1.ListEventsResponse{EarlierMissing: s.missing}
	if n < len(s.events) {
		resp.Events = s.events[n : n+1]
	}
	if n+1 < len(s.events) {
		resp.NextPageToken = strconv.Itoa(n + 1)
	}
	return resp, nil
}

// WatchEvents implements OperatorServiceServer: what follows an event, and one new event.
func (s *shard) WatchEvents(req *nstancev1.WatchEventsRequest, to nstancev1.OperatorService_WatchEventsServer) error {
	s.mu.Lock()
	s.follows = append(s.follows, req)
	last := len(s.events)
	after := slices.IndexFunc(s.events, func(e *nstancev1.Event) bool { return e.GetId() == req.GetAfterId() })
	past := slices.Clone(s.events[after+1:])
	s.mu.Unlock()
	for _, e := range past {
		if err := to.Send(&nstancev1.WatchEventsResponse{Type: nstancev1.EventType_EVENT_TYPE_UPSERT, Event: e}); err != nil {
			return err
		}
	}
	at := &nstancev1.Event{Id: fmt.Sprintf("1.%d", last+1), At: timestamppb.New(time.Unix(1e9, 0)), Kind: "delete", Message: "live"}
	for _, m := range []*nstancev1.WatchEventsResponse{
		{Type: nstancev1.EventType_EVENT_TYPE_SNAPSHOT_END}, {Type: nstancev1.EventType_EVENT_TYPE_UPSERT, Event: at},
	} {
		if err := to.Send(m); err != nil {
			return err
		}
	}
	<-to.Context().Done()
	return nil
}

func (s *shard) happened(second int64, kind, message string) {
	s.events = append(s.events, &nstancev1.Event{
		Id: fmt.Sprintf("1.%d", len(s.events)+1), At: timestamppb.New(time.Unix(1e9+second, 0)), Kind: kind, Tenant: "default", Group: "web",
		InstanceId: newInstance, Replaces: oldInstance, Actor: "rule:health", Reason: "vm-gone", Message: message,
	})
}

// twoShards has two shards with events whose times interleave.
func twoShards(t *testing.T) (c *fixture, one, two *shard) {
	t.Helper()
	c = newFixture(t).register()
	one, two = c.shard("one"), c.shard("two")
	one.happened(1, "replace", "it replaces another: its machine is gone")
	two.happened(2, "delete", "two")
	one.happened(3, "deleted", "three")
	one.events = append(one.events, &nstancev1.Event{
		Id: "1.3", At: timestamppb.New(time.Unix(1e9+4, 0)), Kind: "change", Actor: webOperator, Reason: "upsert-group", Message: "size 5 -> 3",
		Changes: []*nstancev1.EventChange{{Name: "size", From: "5", To: "3"}},
	})
	return c, one, two
}

// TestEventList: the events of all shards are listed by time, page by page, with who and why.
func TestEventList(t *testing.T) {
	c, one, two := twoShards(t)
	r := c.run("events", "-o", "json").want(t, cli.ExitOK)
	var got []string
	for _, h := range decode[[]happened](t, r.out) {
		got = append(got, h.Shard+" "+h.Message.GetMessage())
	}
	want := []string{"one it replaces another: its machine is gone", "two two", "one three", "one size 5 -> 3"}
	if !slices.Equal(got, want) || !r.quiet() {
		t.Errorf("%q, want %q; %s", got, want, r.errOut)
	}
	lines := strings.Split(strings.TrimSpace(c.run("events", "-o", "wide").want(t, cli.ExitOK).out), "\n")
	if len(lines) != 5 || !strings.HasPrefix(lines[0], "TIME ") || strings.Join(strings.Fields(lines[1]), " ") !=
		"2001-09-09T01:46:41Z one replace web "+newInstance+" rule:health it replaces another: its machine is gone" ||
		!strings.Contains(lines[4], "operator opr01h455vb4pex5vsknk084sn02q") || strings.Contains(lines[4], "spiffe") {
		t.Errorf("%s", strings.Join(lines, "\n"))
	}
	r = c.run("events", "-o", "yaml", "--shard", "two").want(t, cli.ExitOK)
	if !strings.Contains(r.out, "message: two") || strings.Contains(r.out, "three") {
		t.Error(r.out)
	}

	one.asked = nil
	c.run("events", "--shard", "one", "--group", "web", "--instance", oldInstance, "--since", "2h").want(t, cli.ExitOK)
	req := one.asked[0]
	if since := time.Since(req.GetSince().AsTime()); req.GetGroup() != "web" || req.GetInstanceId() != oldInstance ||
		since < 2*time.Hour || since > 3*time.Hour {
		t.Errorf("asked for %v", req)
	}
	two.missing = true
	c.run("events", "-o", "wide").want(t, cli.ExitOK, "warning: shard two can't read the events of its earlier leaders")
	c.run("events", "--instance", "web-1").want(t, cli.ExitUsage, "--instance: ", `"web-1"`)
	c.run("events", "--since", "-2h").want(t, cli.ExitUsage, "--since: -2h0m0s is not valid")
}

// TestEventListFollow: what there is comes first, by time, and then what happens, without a gap or a
// repetition.
func TestEventListFollow(t *testing.T) {
	c, one, two := twoShards(t)
	reached := func(r result) bool { return strings.Count(r.out, "live") == 2 }
	r := c.runUntilTimeout("2s", reached, "events", "--follow", "--group", "web").want(t, cli.ExitOK)
	lines := strings.Split(strings.TrimSpace(r.out), "\n")
	if len(lines) != 6 || !strings.Contains(lines[3], "size 5 -> 3") || !strings.Contains(lines[4], "live") ||
		!strings.Contains(lines[5], "live") {
		t.Errorf("%s", r.out)
	}
	for _, s := range []*shard{one, two} {
		if req := s.follows[0]; req.GetAfterId() != fmt.Sprintf("1.%d", len(s.events)) || req.GetGroup() != "web" {
			t.Errorf("followed %v", req)
		}
	}
	r = c.runUntilTimeout("2s", reached, "events", "-f", "-o", "json").want(t, cli.ExitOK)
	for line := range strings.Lines(r.out) {
		if h := decode[happened](t, line); h.Shard == "" || h.Message.GetId() == "" {
			t.Errorf("%s", line)
		}
	}
}

// TestGroupExplain: it says what the group has, what is known to hold it up, and what happened.
func TestGroupExplain(t *testing.T) {
	c, one, _ := twoShards(t)
	at := timestamppb.New(time.Unix(1e9, 0))
	one.setGroups(&nstancev1.GroupStatus{
		Key: "web", Tenant: "default", Size: 3, ActualSize: 1, PendingSize: 1, DrainingSize: 1, Conditions: []*nstancev1.Condition{
			{Type: "Ready", Status: "False", Reason: "NotAtSize", Message: "1 of 3 instances run, 1 are pending"},
			{
				Type: "CreatesFailing", Status: "True", Reason: "QuotaUsedUp", Message: "the quota is used up (5 creates failed)",
				LastTransitionTime: at,
			},
		},
	})
	const (
		pending  = nstancev1.InstancePhase_INSTANCE_PHASE_PENDING
		running  = nstancev1.InstancePhase_INSTANCE_PHASE_RUNNING
		draining = nstancev1.InstancePhase_INSTANCE_PHASE_DRAINING
	)
	one.instances = []*nstancev1.InstanceStatus{
		{Id: newInstance, Group: "web", Phase: pending, CreatedAt: timestamppb.Now(), LastError: "no room"},
		{Id: oldInstance, Group: "web", Phase: draining, Reason: "infra-drift", Drain: &nstancev1.DrainStatus{DeleteAt: at}},
		{Id: "ready", Group: "web", Phase: running, LastReportAt: at},
		{Id: "single", Group: "web", OnDemand: true, Phase: pending, CreatedAt: at},
	}
	r := c.run("group", "explain", "web").want(t, cli.ExitOK)
	for n, want := range []string{
		"Group web of shard one is not at size: 1 of 3 instances run, 1 are pending, 1 drain, 1 were made from another definition, " +
			"1 are not known to have the newest version of their files.",
		"CreatesFailing (QuotaUsedUp) since 2001-09-09T01:46:40Z: the quota is used up (5 creates failed).",
		"Instance " + newInstance + " is pending for ",
		"Instance " + oldInstance + " drains (infra-drift) until 2001-09-09T01:46:40Z at the latest.",
		"Its latest events:",
		"  2001-09-09T01:46:41Z replace: " + newInstance + ": it replaces another: its machine is gone",
		"  2001-09-09T01:46:43Z deleted: " + newInstance + ": three",
		"  2001-09-09T01:46:44Z change: size 5 -> 3, by operator opr01h455vb4pex5vsknk084sn02q",
	} {
		if lines := strings.Split(r.out, "\n"); len(lines) != 9 || !strings.HasPrefix(lines[n], want) {
			t.Errorf("line %d: want %q in\n%s", n, want, r.out)
			break
		}
	}
	if !strings.Contains(r.out, "; its last error: no room.") || strings.Contains(r.out, "single") ||
		strings.Contains(r.out, "Instance ready") {
		t.Error(r.out)
	}
	type explanation struct {
		Shard, Key string
		AtSize     bool `json:"at_size"`
		Lines      []string
	}
	one.setGroups(&nstancev1.GroupStatus{Key: "web", Size: 1, ActualSize: 1, UpToDateSize: 1, FilesUpToDateSize: 1})
	one.instances, one.events = nil, nil
	all := decode[[]explanation](t, c.run("group", "explain", "web", "-o", "json").want(t, cli.ExitOK).out)
	if len(all) != 1 || !all[0].AtSize || !slices.Equal(all[0].Lines, []string{"Group web of shard one is at size: 1 of 1 instances run."}) {
		t.Errorf("%+v", all)
	}
	one.setGroups(&nstancev1.GroupStatus{Key: "web", Size: 1})
	if r := c.run("group", "explain", "web").want(t, cli.ExitOK); !strings.Contains(r.out, "Nothing is known that holds it up") {
		t.Error(r.out)
	}
	c.run("group", "explain", "wbe").want(t, cli.ExitFailed, `"wbe"`, "did you mean web?")
}

// TestExplainOfFiles: an instance that runs and lacks its files is named, with the reason.
func TestExplainOfFiles(t *testing.T) {
	c, one, _ := twoShards(t)
	const running = nstancev1.InstancePhase_INSTANCE_PHASE_RUNNING
	at := timestamppb.New(time.Unix(1e9, 0))
	group := &nstancev1.GroupStatus{
		Key: "web", Size: 2, ActualSize: 1, UpToDateSize: 1, FilesUpToDateSize: 1, PendingSize: 1,
		Conditions: []*nstancev1.Condition{
			{Type: "Ready", Status: "False", Reason: "AwaitingFiles", Message: "1 of 2 instances run; 1 without files"},
		},
	}
	one.setGroups(group)
	one.instances = []*nstancev1.InstanceStatus{
		{Id: oldInstance, Group: "web", Phase: running, LastReportAt: at, Connected: true, ConfigHash: "h"},
		{Id: "apart", Group: "web", Phase: running, LastReportAt: at},
		{Id: newInstance, Group: "web", Phase: running, LastReportAt: at, Connected: true,
			LastError: "file net.json: object files/net.json does not exist"},
	}
	r := c.run("group", "explain", "web").want(t, cli.ExitOK)
	want := "\nReady (AwaitingFiles): 1 of 2 instances run; 1 without files.\n" +
		"Instance " + newInstance + " has no files yet; its last error: file net.json: object files/net.json does not exist.\n"
	if !strings.Contains(r.out, want) || strings.Contains(r.out, "Instance "+oldInstance) || strings.Contains(r.out, "apart") {
		t.Error(r.out)
	}
	group.Conditions = nil
	if r := c.run("group", "explain", "web").want(t, cli.ExitOK); strings.Contains(r.out, "files yet") {
		t.Errorf("of a group without files: %s", r.out)
	}
}
