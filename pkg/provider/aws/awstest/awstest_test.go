package awstest_test

import (
	"errors"
	"fmt"
	"net/http"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/nstance/nstance/pkg/provider/aws/awstest"
)

func TestLife(t *testing.T) {
	f := newFixture(t, nil)
	state := func(id string) (state, why string) {
		t.Helper()
		got := f.call(t, "DescribeInstances", map[string]string{"Filter.1.Name": "instance-id", "Filter.1.Value.1": id})
		if len(got.Found) != 1 {
			return "", ""
		}
		return got.Found[0].State, got.Found[0].Why
	}
	want := func(id, state1, why string) {
		t.Helper()
		if got, because := state(id); got != state1 || because != why {
			t.Errorf("%s is %s because of %q; want %s, %q", id, got, because, state1, why)
		}
	}
	a, b := f.run(t, nil), f.run(t, map[string]string{"ClientToken": "b"})
	want(a, "pending", "pending")
	f.pass(time.Minute)
	want(a, "running", "")
	if err := errors.Join(f.Stop(a), f.Kill(b, "Server.InternalError", "Server.InternalError: the host died")); err != nil {
		t.Fatal(err)
	}
	want(a, "stopping", "Client.UserInitiatedShutdown: User initiated shutdown")
	want(b, "shutting-down", "Server.InternalError: the host died")
	f.pass(time.Minute)
	want(a, "stopped", "Client.UserInitiatedShutdown: User initiated shutdown")
	want(b, "terminated", "Server.InternalError: the host died")
	f.pass(time.Hour)
	want(a, "stopped", "Client.UserInitiatedShutdown: User initiated shutdown")
	want(b, "", "")
	f.FailBoots(1, "Client.InvalidKMSKey.InvalidState", "The KMS key provided is in an incorrect state")
	c := f.run(t, map[string]string{"ClientToken": "c"})
	want(c, "pending", "pending")
	f.pass(time.Minute)
	want(c, "terminated", "The KMS key provided is in an incorrect state")
	if f.Stop("i-0") == nil || f.Kill("i-0", "", "") == nil {
		t.Error("what is not there was stopped, or killed")
	}
}

func TestTerminateIsAllOrNothing(t *testing.T) {
	f := newFixture(t, nil)
	a := f.run(t, nil)
	protected := f.AddMachine(subnet, map[string]string{"team": "ops"}, true)
	for _, c := range []struct{ ids, code, says string }{
		{a + " i-00000000", "InvalidInstanceID.NotFound", "'i-00000000' does"},
		{"i-00000001 " + a + " i-00000000", "InvalidInstanceID.NotFound", "'i-00000000, i-00000001' do "},
		{a + " no-such-vm", "InvalidInstanceID.Malformed", "no-such-vm"},
		{a + " " + protected, "OperationNotPermitted", protected},
		{"", "MissingParameter", "InstanceId"},
	} {
		params := map[string]string{}
		for n, id := range strings.Fields(c.ids) {
			params[fmt.Sprintf("InstanceId.%d", n+1)] = id
		}
		if got := f.call(t, "TerminateInstances", params); got.Code != c.code || !strings.Contains(got.Message, c.says) || got.Status != 400 {
			t.Errorf("terminate %s: %+v; want %s that says %q", c.ids, got, c.code, c.says)
		}
	}
	if got := f.Machines(); got[0].State != "pending" {
		t.Errorf("refused calls ended it: %+v", got[0])
	}
	for range 2 {
		if got := f.call(t, "TerminateInstances", map[string]string{"InstanceId.1": a}); got.Status != 200 {
			t.Errorf("terminate: %+v", got)
		}
	}
}

func TestDescribe(t *testing.T) {
	f := newFixture(t, nil)
	var ids []string
	for n := range 7 {
		ids = append(ids, f.run(t, map[string]string{
			"ClientToken": fmt.Sprint("t", n), "TagSpecification.1.ResourceType": "instance",
			"TagSpecification.1.Tag.1.Key": "n", "TagSpecification.1.Tag.1.Value": fmt.Sprint("v", n),
		}))
	}
	for _, c := range []struct {
		params string // name=value, separated by spaces
		want   string // indexes, or an error code
	}{
		{"", "0123456"},
		{"InstanceId.1=$3 InstanceId.2=$1", "13"},
		{"Filter.1.Name=tag:n Filter.1.Value.1=v2 Filter.1.Value.2=v4", "24"},
		{"Filter.1.Name=tag:n Filter.1.Value.1=v*", "0123456"},
		{"Filter.1.Name=tag:n Filter.1.Value.1=?5", "5"},
		{`Filter.1.Name=tag:n Filter.1.Value.1=\v5`, "5"},
		{`Filter.1.Name=tag:n Filter.1.Value.1=v\*`, ""},
		{"Filter.1.Name=client-token Filter.1.Value.1=t6", "6"},
		{"Filter.1.Name=tag:n Filter.1.Value.1=v1 Filter.2.Name=instance-state-name Filter.2.Value.1=running", ""},
		{"Filter.1.Name=instance-id Filter.1.Value.1=$1 Filter.1.Value.2=i-00000000", "1"},
		{"Filter.1.Name=colour Filter.1.Value.1=red", "InvalidParameterValue"},
		{"Filter.1.Name=tag: Filter.1.Value.1=red", "InvalidParameterValue"},
		{"Filter.1.Name=tag:n", "InvalidParameterValue"},
		{"Filter.2.Name=tag:n", "MissingParameter"},
		{"InstanceId.1=$1 InstanceId.2=i-00000000", "InvalidInstanceID.NotFound"},
		{"InstanceId.1=x", "InvalidInstanceID.Malformed"},
		{"InstanceId.1=$1 MaxResults=5", "InvalidParameterCombination"},
		{"MaxResults=4", "InvalidParameterValue"},
		{"MaxResults=1001", "InvalidParameterValue"},
		{"NextToken=abc", "InvalidNextToken"},
		{"Owner.1=self", "UnknownParameter"},
	} {
		params := map[string]string{}
		for pair := range strings.FieldsSeq(c.params) {
			name, value, _ := strings.Cut(pair, "=")
			if n, ok := strings.CutPrefix(value, "$"); ok {
				value = ids[n[0]-'0']
			}
			params[name] = value
		}
		got := f.call(t, "DescribeInstances", params)
		seen := got.Code
		for _, one := range got.Found {
			seen += fmt.Sprint(slices.Index(ids, one.ID))
		}
		if seen != c.want {
			t.Errorf("%s: %s, want %s", c.params, seen, c.want)
		}
	}
	first := f.call(t, "DescribeInstances", map[string]string{"MaxResults": "5"})
	second := f.call(t, "DescribeInstances", map[string]string{"MaxResults": "5", "NextToken": first.NextToken})
	if len(first.Found) != 5 || len(second.Found) != 2 || second.NextToken != "" || second.Found[0].ID != ids[5] {
		t.Errorf("pages: %+v, %+v", first, second)
	}
}

// TestLag: reads are stale by different durations up to Lag, in no order.
func TestLag(t *testing.T) {
	f := newFixture(t, func(cfg *awstest.Config) { cfg.Lag, cfg.Boot = 10*time.Second, 5*time.Second })
	f.run(t, nil)
	f.pass(7 * time.Second)
	seen := map[string]int{}
	back := false
	last := ""
	for range 200 {
		state := "absent"
		if got := f.call(t, "DescribeInstances", nil); len(got.Found) == 1 {
			state = got.Found[0].State
		}
		back = back || last == "running" && state != "running"
		seen[state]++
		last = state
	}
	if len(seen) != 3 || !back {
		t.Errorf("reads within the lag show %v; an older one after a newer one: %v", seen, back)
	}
	f.pass(10 * time.Second)
	if got := f.call(t, "DescribeInstances", nil); len(got.Found) != 1 || got.Found[0].State != "running" {
		t.Errorf("after the lag: %+v", got)
	}
}

func TestThrottle(t *testing.T) {
	f := newFixture(t, func(cfg *awstest.Config) {
		cfg.Throttles = []awstest.Throttle{{Actions: []string{"RunInstances"}, PerSecond: 2, Burst: 3}}
	})
	launches := func() (through int) {
		for n := range 10 {
			got := f.call(t, "RunInstances", launch(map[string]string{"ClientToken": fmt.Sprint(f.time().Unix(), n)}))
			if got.Status == 200 {
				through++
			} else if got.Status != 503 || got.Code != "RequestLimitExceeded" {
				t.Errorf("throttled: %+v", got)
			}
		}
		return through
	}
	if n := launches(); n != 3 {
		t.Errorf("%d of a burst came through, want 3", n)
	}
	f.pass(time.Second)
	if n := launches(); n != 2 {
		t.Errorf("%d came through a second later, want 2", n)
	}
	if got := f.call(t, "DescribeInstances", nil); got.Status != 200 {
		t.Errorf("another action: %+v", got)
	}
}

func TestFaults(t *testing.T) {
	f := newFixture(t, nil)
	f.FailNext("RunInstances", 1, awstest.Fault{Code: "InternalError", Message: "sorry", Status: 500})
	f.FailNext("RunInstances", 1, awstest.Fault{Dropped: true})
	f.FailNext("RunInstances", 1, awstest.Fault{Lost: true})
	if got := f.call(t, "RunInstances", launch(nil)); got.Code != "InternalError" || got.Status != 500 || got.Message != "sorry" {
		t.Errorf("a scripted refusal: %+v", got)
	}
	for _, made := range []int{0, 1} {
		if got, err := f.do(t, f.request(t, "RunInstances", launch(nil))); err == nil {
			t.Errorf("a call whose connection ends: %+v", got)
		}
		if n := len(f.Machines()); n != made {
			t.Errorf("%d machines, want %d", n, made)
		}
	}
	id := f.run(t, nil)
	calls := f.Calls("RunInstances")
	if id != f.Machines()[0].ID || len(calls) != 4 || calls[0].Code != "InternalError" || calls[3].Token != "one" || len(f.Calls("")) != 4 {
		t.Errorf("the machine is %s; calls %+v", id, calls)
	}
}

func TestSignatures(t *testing.T) {
	f := newFixture(t, nil)
	for _, c := range []struct {
		name   string
		change func(http.Header)
		status int
		code   string
	}{
		{"none", func(h http.Header) { h.Del("Authorization") }, 403, "MissingAuthenticationToken"},
		{"another kind", func(h http.Header) { h.Set("Authorization", "Basic YTpi") }, 401, "AuthFailure"},
		{"another region", replace("us-east-1", "eu-west-1"), 401, "AuthFailure"},
		{"another service", replace("/ec2/", "/s3/"), 401, "AuthFailure"},
		{"another day", func(h http.Header) { h.Set("X-Amz-Date", "20300103T030405Z") }, 401, "AuthFailure"},
		{"an old one", func(h http.Header) { h.Set("X-Amz-Date", "20300102T020405Z") }, 400, "RequestExpired"},
		{"another body", func(h http.Header) { h.Set("Content-Type", "application/json") }, 400, "MalformedQueryString"},
	} {
		r := f.request(t, "DescribeInstances", nil)
		c.change(r.Header)
		if got, err := f.do(t, r); err != nil || got.Status != c.status || got.Code != c.code {
			t.Errorf("%s: %+v, %v; want %d %s", c.name, got, err, c.status, c.code)
		}
	}
	if got := f.call(t, "StartInstances", nil); got.Code != "InvalidAction" {
		t.Errorf("an action that is unknown: %+v", got)
	}
}

func replace(old, fresh string) func(http.Header) {
	return func(h http.Header) { h.Set("Authorization", strings.ReplaceAll(h.Get("Authorization"), old, fresh)) }
}

func TestOtherDescriptions(t *testing.T) {
	f := newFixture(t, nil)
	f.run(t, nil)
	if got := f.call(t, "DescribeSubnets", map[string]string{"SubnetId.1": subnet}); !slices.Equal(got.Free, []int{10}) {
		t.Errorf("free addresses: %+v", got)
	}
	if got := f.call(t, "DescribeSubnets", map[string]string{"SubnetId.1": "subnet-0000000f"}); got.Code != "InvalidSubnetID.NotFound" {
		t.Errorf("a subnet that is not there: %+v", got)
	}
	got := f.call(t, "DescribeInstanceTypes", map[string]string{"InstanceType.1": "t3.small"})
	if !slices.Equal(got.Types, []string{"t3.small"}) {
		t.Errorf("instance types: %+v", got)
	}
	if got := f.call(t, "DescribeInstanceTypes", map[string]string{"InstanceType.1": "x.y"}); got.Code != "InvalidInstanceType" {
		t.Errorf("an instance type that is not there: %+v", got)
	}
	for owner, want := range map[string][]string{"self": {image}, "amazon": {"ami-00000002"}, "1": {"ami-00000002"}, "2": nil} {
		if got := f.call(t, "DescribeImages", map[string]string{"Owner.1": owner}); !slices.Equal(got.Images, want) {
			t.Errorf("images of %s: %+v", owner, got)
		}
	}
	first := f.call(t, "DescribeImages", map[string]string{"MaxResults": "1"})
	rest := f.call(t, "DescribeImages", map[string]string{"MaxResults": "1", "NextToken": first.NextToken})
	if !slices.Equal(first.Images, []string{image}) || !slices.Equal(rest.Images, []string{"ami-00000002"}) || rest.NextToken != "" {
		t.Errorf("pages of images: %+v, %+v", first, rest)
	}
}
