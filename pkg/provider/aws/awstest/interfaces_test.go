package awstest_test

import (
	"fmt"
	"maps"
	"net/http"
	"net/netip"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/nstance/nstance/pkg/provider/aws/awstest"
)

const anEmptyID = "eni-00000000000000000"

// machines launches running machines, and returns their ids.
func (f *fixture) machines(t *testing.T, n int) (ids []string) {
	t.Helper()
	for i := range n {
		ids = append(ids, f.run(t, map[string]string{"ClientToken": fmt.Sprint("m", i)}))
	}
	f.pass(time.Minute)
	return ids
}

// plant adds an interface with fixed addresses.
func (f *fixture) plant(t *testing.T, ipv4, ipv6 string) string {
	t.Helper()
	var six netip.Addr
	if ipv6 != "" {
		six = netip.MustParseAddr(ipv6)
	}
	id, err := f.AddInterface(subnet, netip.MustParseAddr(ipv4), six, map[string]string{"team": "ops"})
	if err != nil {
		t.Fatal(err)
	}
	return id
}

// nic returns an interface as a read shows it.
func (f *fixture) nic(t *testing.T, id string) nic {
	t.Helper()
	got := f.call(t, "DescribeNetworkInterfaces", map[string]string{"NetworkInterfaceId.1": id})
	if len(got.Cards) != 1 {
		t.Fatalf("%s: %+v", id, got)
	}
	return got.Cards[0]
}

// primary returns the primary interface of a machine.
func (f *fixture) primary(t *testing.T, machine string) awstest.Interface {
	t.Helper()
	all := f.Interfaces()
	n := slices.IndexFunc(all, func(i awstest.Interface) bool { return i.Instance == machine && i.Index == 0 })
	if n < 0 {
		t.Fatalf("%s has no interface: %+v", machine, all)
	}
	return all[n]
}

// pairs are parameters written as name=value, separated by spaces.
func pairs(text string) map[string]string {
	params := map[string]string{}
	for pair := range strings.FieldsSeq(text) {
		name, value, _ := strings.Cut(pair, "=")
		params[name] = value
	}
	return params
}

func TestPrimaryInterfaces(t *testing.T) {
	f := newFixture(t, nil)
	id := f.run(t, map[string]string{
		"SubnetId": "", "NetworkInterface.1.DeviceIndex": "0", "NetworkInterface.1.SubnetId": subnet,
		"NetworkInterface.1.PrivateIpAddress": "10.0.0.9", "NetworkInterface.2.DeviceIndex": "1",
		"NetworkInterface.2.SubnetId": subnet, "NetworkInterface.2.DeleteOnTermination": "false",
		"TagSpecification.1.ResourceType": "network-interface", "TagSpecification.1.Tag.1.Key": "team", "TagSpecification.1.Tag.1.Value": "ops",
	})
	shown := f.call(t, "DescribeInstances", nil).Found[0].Cards
	if len(shown) != 2 || shown[0].Index != 0 || shown[1].Index != 1 || shown[0].Addresses[0] != "10.0.0.9" ||
		shown[1].Addresses[0] != "10.0.0.4" {
		t.Errorf("the instance shows %+v", shown)
	}
	tagged := f.call(t, "DescribeNetworkInterfaces", pairs("Filter.1.Name=tag:team Filter.1.Value.1=ops"))
	if len(tagged.Cards) != 2 || tagged.Cards[0].Instance != id || tagged.Cards[0].Attached != "attached" ||
		tagged.Cards[0].Zone != "us-east-1a" {
		t.Errorf("tagged interfaces: %+v", tagged)
	}
	if got := f.call(t, "DescribeSubnets", map[string]string{"SubnetId.1": subnet}); !slices.Equal(got.Free, []int{9}) {
		t.Errorf("free addresses: %v", got.Free)
	}
	f.call(t, "TerminateInstances", map[string]string{"InstanceId.1": id})
	f.pass(time.Minute)
	left := f.Interfaces()
	if len(left) != 1 || left[0].Status != "available" || left[0].Instance != "" || left[0].ID != shown[1].ID {
		t.Errorf("once it is terminated there are %+v", left)
	}
	if got := f.call(t, "DescribeSubnets", map[string]string{"SubnetId.1": subnet}); !slices.Equal(got.Free, []int{10}) {
		t.Errorf("free addresses afterwards: %v", got.Free)
	}
}

func TestDescribeInterfaces(t *testing.T) {
	f := newFixture(t, nil)
	m := f.machines(t, 1)[0]
	a, b := f.plant(t, "10.0.0.10", ""), f.plant(t, "10.0.0.11", "2001:db8::11")
	ids := []string{f.primary(t, m).ID, a, b}
	for _, c := range []struct{ params, want string }{
		{"", "012"},
		{"NetworkInterfaceId.1=" + b, "2"},
		{"Filter.1.Name=network-interface-id Filter.1.Value.1=" + a, "1"},
		{"Filter.1.Name=addresses.private-ip-address Filter.1.Value.1=10.0.0.11", "2"},
		{"Filter.1.Name=ipv6-addresses.ipv6-address Filter.1.Value.1=2001:db8::11", "2"},
		{"Filter.1.Name=attachment.instance-id Filter.1.Value.1=" + m, "0"},
		{"Filter.1.Name=attachment.device-index Filter.1.Value.1=0", "0"},
		{"Filter.1.Name=subnet-id Filter.1.Value.1=" + subnet, "012"},
		{"Filter.1.Name=tag:team Filter.1.Value.1=ops", "12"},
		{"Filter.1.Name=colour Filter.1.Value.1=red", "InvalidParameterValue"},
		{"NetworkInterfaceId.1=" + anEmptyID, "InvalidNetworkInterfaceID.NotFound"},
		{"NetworkInterfaceId.1=eni-x", "InvalidNetworkInterfaceId.Malformed"},
		{"NetworkInterfaceId.1=" + a + " MaxResults=5", "InvalidParameterCombination"},
		{"MaxResults=4", "InvalidParameterValue"},
		{"Owner.1=self", "UnknownParameter"},
	} {
		got := f.call(t, "DescribeNetworkInterfaces", pairs(c.params))
		seen := got.Code
		for _, card := range got.Cards {
			seen += fmt.Sprint(slices.Index(ids, card.ID))
		}
		if seen != c.want {
			t.Errorf("%s: %s, want %s", c.params, seen, c.want)
		}
	}
	for range 4 {
		if _, err := f.AddInterface(subnet, netip.Addr{}, netip.Addr{}, nil); err != nil {
			t.Fatal(err)
		}
	}
	first := f.call(t, "DescribeNetworkInterfaces", map[string]string{"MaxResults": "5"})
	second := f.call(t, "DescribeNetworkInterfaces", map[string]string{"MaxResults": "5", "NextToken": first.NextToken})
	if len(first.Cards) != 5 || len(second.Cards) != 2 || second.NextToken != "" {
		t.Errorf("pages: %+v, %+v", first, second)
	}
	for _, c := range []struct{ subnet, ipv4, ipv6 string }{
		{"subnet-0000000f", "10.0.0.12", ""}, {subnet, "10.0.0.10", ""}, {subnet, "10.0.0.3", ""}, {subnet, "10.0.0.12", "2001:db8::11"},
		{farSubnet, "10.0.1.9", "2001:db8::12"},
	} {
		six, _ := netip.ParseAddr(c.ipv6)
		if id, err := f.AddInterface(c.subnet, netip.MustParseAddr(c.ipv4), six, nil); err == nil {
			t.Errorf("planted %s with %+v", id, c)
		}
	}
}

// TestAttachments: an interface moves from one machine to another, with the configured delays.
func TestAttachments(t *testing.T) {
	f := newFixture(t, func(cfg *awstest.Config) { cfg.Attach, cfg.Detach = 3*time.Second, 5*time.Second })
	ms := f.machines(t, 2)
	eni := f.plant(t, "10.0.0.12", "")
	attach := func(m string) reply {
		return f.call(t, "AttachNetworkInterface", map[string]string{"NetworkInterfaceId": eni, "InstanceId": m, "DeviceIndex": "1"})
	}
	want := func(status, attached, machine string) {
		t.Helper()
		if got := f.nic(t, eni); got.Status != status || got.Attached != attached || got.Instance != machine {
			t.Errorf("%+v; want %s, %s in %q", got, status, attached, machine)
		}
	}
	want("available", "", "")
	first := attach(ms[0])
	want("attaching", "attaching", ms[0])
	f.pass(3 * time.Second)
	want("in-use", "attached", ms[0])
	if got := attach(ms[1]); got.Code != "InvalidNetworkInterface.InUse" {
		t.Errorf("attached twice: %+v", got)
	}
	for range 2 {
		if got := f.call(t, "DetachNetworkInterface", map[string]string{"AttachmentId": first.Attached}); !got.Return {
			t.Errorf("detach: %+v", got)
		}
	}
	want("detaching", "detaching", ms[0])
	if got := attach(ms[1]); got.Code != "InvalidNetworkInterface.InUse" {
		t.Errorf("attached while it is detached: %+v", got)
	}
	f.pass(5 * time.Second)
	want("available", "", "")
	second := attach(ms[0])
	if second.Attached == first.Attached || second.Status != http.StatusOK {
		t.Errorf("the second attachment: %+v", second)
	}
	got := f.call(t, "DetachNetworkInterface", map[string]string{"AttachmentId": first.Attached, "Force": "true"})
	if got.Code != "InvalidAttachmentID.NotFound" {
		t.Errorf("an attachment that has ended: %+v", got)
	}
	if err := f.Kill(ms[0], "Server.InternalError", "the host died"); err != nil {
		t.Fatal(err)
	}
	f.pass(time.Minute)
	want("available", "", "")
}

// TestForce: a hanging machine releases an interface only by force, and its device index is lost.
func TestForce(t *testing.T) {
	f := newFixture(t, func(cfg *awstest.Config) { cfg.Detach = time.Second })
	m := f.machines(t, 1)[0]
	eni := f.plant(t, "10.0.0.12", "")
	attach := func(index string) reply {
		return f.call(t, "AttachNetworkInterface", map[string]string{"NetworkInterfaceId": eni, "InstanceId": m, "DeviceIndex": index})
	}
	detach := func(force string) {
		t.Helper()
		got := f.call(t, "DetachNetworkInterface", map[string]string{"AttachmentId": f.nic(t, eni).Attachment, "Force": force})
		if !got.Return {
			t.Errorf("detach: %+v", got)
		}
	}
	attach("1")
	if err := f.Hang(m); err != nil {
		t.Fatal(err)
	}
	detach("false")
	f.pass(time.Hour)
	if got := f.nic(t, eni); got.Status != "detaching" {
		t.Errorf("it hangs: %+v", got)
	}
	detach("true")
	f.pass(time.Second)
	if got := f.nic(t, eni); got.Status != "available" {
		t.Errorf("by force: %+v", got)
	}
	if got := attach("1"); got.Code != "InvalidParameterValue" || !strings.Contains(got.Message, "device index '1'") {
		t.Errorf("at the index that was lost: %+v", got)
	}
	if got := attach("2"); got.Attached == "" {
		t.Errorf("at another: %+v", got)
	}
	if f.Hang("i-0") == nil {
		t.Error("what is not there hangs")
	}
}

func TestRefusedAttachments(t *testing.T) {
	f := newFixture(t, nil)
	m := f.machines(t, 1)[0]
	young := f.run(t, map[string]string{"ClientToken": "young"})
	eni := f.plant(t, "10.0.0.12", "")
	far, err := f.AddInterface(farSubnet, netip.Addr{}, netip.Addr{}, nil)
	if err != nil {
		t.Fatal(err)
	}
	full := f.run(t, map[string]string{
		"ClientToken": "full", "SubnetId": "", "NetworkInterface.1.DeviceIndex": "0", "NetworkInterface.1.SubnetId": subnet,
		"NetworkInterface.2.DeviceIndex": "1", "NetworkInterface.2.SubnetId": subnet, "NetworkInterface.3.DeviceIndex": "2",
		"NetworkInterface.3.SubnetId": subnet,
	})
	if err := f.Stop(full); err != nil {
		t.Fatal(err)
	}
	f.pass(time.Minute)
	own := f.primary(t, m)
	young2 := f.run(t, map[string]string{"ClientToken": "younger"})
	for _, c := range []struct{ action, params, code string }{
		{"AttachNetworkInterface", "InstanceId=" + m + " DeviceIndex=1", "MissingParameter"},
		{"AttachNetworkInterface", "DeviceIndex=1 NetworkInterfaceId=" + eni, "MissingParameter"},
		{"AttachNetworkInterface", "NetworkInterfaceId=" + eni + " InstanceId=" + m, "MissingParameter"},
		{"AttachNetworkInterface", "NetworkInterfaceId=" + eni + " DeviceIndex=one InstanceId=" + m, "InvalidParameterValue"},
		{"AttachNetworkInterface", "NetworkInterfaceId=" + eni + " DeviceIndex=-1 InstanceId=" + m, "InvalidParameterValue"},
		{"AttachNetworkInterface", "NetworkInterfaceId=" + eni + " DeviceIndex=0 InstanceId=" + m, "InvalidParameterValue"},
		{"AttachNetworkInterface", "NetworkInterfaceId=" + eni + " DeviceIndex=1 NetworkCardIndex=1 InstanceId=" + m, "InvalidParameterValue"},
		{"AttachNetworkInterface", "NetworkInterfaceId=" + anEmptyID + " DeviceIndex=1 InstanceId=" + m, "InvalidNetworkInterfaceID.NotFound"},
		{"AttachNetworkInterface", "NetworkInterfaceId=eni-x DeviceIndex=1 InstanceId=" + m, "InvalidNetworkInterfaceId.Malformed"},
		{"AttachNetworkInterface", "NetworkInterfaceId=" + eni + " DeviceIndex=1 InstanceId=i-00000000", "InvalidInstanceID.NotFound"},
		{"AttachNetworkInterface", "NetworkInterfaceId=" + eni + " DeviceIndex=1 InstanceId=x", "InvalidInstanceID.Malformed"},
		{"AttachNetworkInterface", "NetworkInterfaceId=" + eni + " DeviceIndex=1 InstanceId=" + young2, "IncorrectState"},
		{"AttachNetworkInterface", "NetworkInterfaceId=" + far + " DeviceIndex=1 InstanceId=" + m, "InvalidParameterCombination"},
		{"AttachNetworkInterface", "NetworkInterfaceId=" + eni + " DeviceIndex=3 InstanceId=" + full, "AttachmentLimitExceeded"},
		{"AttachNetworkInterface", "NetworkInterfaceId=" + own.ID + " DeviceIndex=1 InstanceId=" + young, "InvalidNetworkInterface.InUse"},
		{"DetachNetworkInterface", "AttachmentId=" + own.Attachment + " Force=true", "OperationNotPermitted"},
		{"DetachNetworkInterface", "AttachmentId=eni-attach-00000000", "InvalidAttachmentID.NotFound"},
		{"DetachNetworkInterface", "AttachmentId=" + eni, "InvalidNetworkInterfaceAttachmentId.Malformed"},
		{"DetachNetworkInterface", "", "MissingParameter"},
		{"DetachNetworkInterface", "AttachmentId=" + own.Attachment + " Force=yes", "InvalidParameterValue"},
	} {
		if got := f.call(t, c.action, pairs(c.params)); got.Code != c.code || got.Status != http.StatusBadRequest {
			t.Errorf("%s %s: %+v; want %s", c.action, c.params, got, c.code)
		}
	}
	if got := f.nic(t, eni); got.Status != "available" {
		t.Errorf("refused calls attached it: %+v", got)
	}
}

func TestRefusedInterfacesOfLaunches(t *testing.T) {
	f := newFixture(t, nil)
	first := map[string]string{"SubnetId": "", "NetworkInterface.1.DeviceIndex": "0", "NetworkInterface.1.SubnetId": subnet}
	for _, c := range []struct{ params, code string }{
		{"NetworkInterface.2.DeviceIndex=1 NetworkInterface.2.SubnetId=" + farSubnet, "InvalidParameterCombination"},
		{"NetworkInterface.2.DeviceIndex=1", "MissingInput"},
		{"NetworkInterface.2.DeviceIndex=-1 NetworkInterface.2.SubnetId=" + subnet, "InvalidParameterValue"},
		{"NetworkInterface.1.PrivateIpAddress=10.0.1.4", "InvalidParameterValue"},
		{"NetworkInterface.1.PrivateIpAddress=2001:db8::1", "InvalidParameterValue"},
		{"NetworkInterface.1.PrivateIpAddress=10.0.0.12", "InvalidIPAddress.InUse"},
		{"NetworkInterface.1.DeleteOnTermination=maybe", "InvalidParameterValue"},
	} {
		if c.code == "InvalidIPAddress.InUse" {
			f.plant(t, "10.0.0.12", "")
		}
		params := launch(first)
		maps.Copy(params, pairs(c.params))
		if got := f.call(t, "RunInstances", params); got.Code != c.code {
			t.Errorf("%s: %+v; want %s", c.params, got, c.code)
		}
	}
	params := launch(first)
	for n := 2; n <= 4; n++ {
		params[fmt.Sprintf("NetworkInterface.%d.DeviceIndex", n)] = fmt.Sprint(n)
		params[fmt.Sprintf("NetworkInterface.%d.SubnetId", n)] = subnet
	}
	if got := f.call(t, "RunInstances", params); got.Code != "AttachmentLimitExceeded" {
		t.Errorf("four interfaces: %+v", got)
	}
}

// TestInterfacesLag: reads of interfaces are stale, like those of machines.
func TestInterfacesLag(t *testing.T) {
	f := newFixture(t, func(cfg *awstest.Config) { cfg.Lag = 10 * time.Second })
	m := f.machines(t, 1)[0]
	eni := f.plant(t, "10.0.0.12", "")
	f.pass(time.Minute)
	f.call(t, "AttachNetworkInterface", map[string]string{"NetworkInterfaceId": eni, "InstanceId": m, "DeviceIndex": "1"})
	f.pass(5 * time.Second)
	seen := map[string]bool{}
	for range 100 {
		seen[f.nic(t, eni).Status] = true
	}
	if !seen["available"] || !seen["in-use"] || len(seen) != 2 {
		t.Errorf("reads within the lag show %v", seen)
	}
	f.pass(10 * time.Second)
	if got := f.nic(t, eni); got.Status != "in-use" {
		t.Errorf("after the lag: %+v", got)
	}
}
