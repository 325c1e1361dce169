package awsfake_test

import (
	"fmt"
	"maps"
	"net/http"
	"net/netip"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/nstance/nstance/pkg/provider/aws/awsfake"
)

const anEmptyID = "eni-00000000000000000"

// machines launches some that run, and returns their ids.
func (w *world) machines(t *testing.T, n int) (ids []string) {
	t.Helper()
	for i := range n {
		ids = append(ids, w.run(t, map[string]string{"ClientToken": fmt.Sprint("m", i)}))
	}
	w.pass(time.Minute)
	return ids
}

// plant makes an interface with fixed addresses.
func (w *world) plant(t *testing.T, ipv4, ipv6 string) string {
	t.Helper()
	var six netip.Addr
	if ipv6 != "" {
		six = netip.MustParseAddr(ipv6)
	}
	id, err := w.PlantInterface(subnet, netip.MustParseAddr(ipv4), six, map[string]string{"team": "ops"})
	if err != nil {
		t.Fatal(err)
	}
	return id
}

// card returns an interface as a read shows it.
func (w *world) card(t *testing.T, id string) nic {
	t.Helper()
	got := w.call(t, "DescribeNetworkInterfaces", map[string]string{"NetworkInterfaceId.1": id})
	if len(got.Cards) != 1 {
		t.Fatalf("%s: %+v", id, got)
	}
	return got.Cards[0]
}

// primary returns the interface that a machine came with.
func (w *world) primary(t *testing.T, machine string) awsfake.Interface {
	t.Helper()
	all := w.Interfaces()
	n := slices.IndexFunc(all, func(i awsfake.Interface) bool { return i.Instance == machine && i.Index == 0 })
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
	w := newWorld(t, nil)
	id := w.run(t, map[string]string{
		"SubnetId": "", "NetworkInterface.1.DeviceIndex": "0", "NetworkInterface.1.SubnetId": subnet,
		"NetworkInterface.1.PrivateIpAddress": "10.0.0.9", "NetworkInterface.2.DeviceIndex": "1",
		"NetworkInterface.2.SubnetId": subnet, "NetworkInterface.2.DeleteOnTermination": "false",
		"TagSpecification.1.ResourceType": "network-interface", "TagSpecification.1.Tag.1.Key": "team", "TagSpecification.1.Tag.1.Value": "ops",
	})
	shown := w.call(t, "DescribeInstances", nil).Found[0].Cards
	if len(shown) != 2 || shown[0].Index != 0 || shown[1].Index != 1 || shown[0].Addresses[0] != "10.0.0.9" ||
		shown[1].Addresses[0] != "10.0.0.4" {
		t.Errorf("the instance shows %+v", shown)
	}
	tagged := w.call(t, "DescribeNetworkInterfaces", pairs("Filter.1.Name=tag:team Filter.1.Value.1=ops"))
	if len(tagged.Cards) != 2 || tagged.Cards[0].Instance != id || tagged.Cards[0].Attached != "attached" ||
		tagged.Cards[0].Zone != "us-east-1a" {
		t.Errorf("tagged interfaces: %+v", tagged)
	}
	if got := w.call(t, "DescribeSubnets", map[string]string{"SubnetId.1": subnet}); !slices.Equal(got.Free, []int{9}) {
		t.Errorf("free addresses: %v", got.Free)
	}
	w.call(t, "TerminateInstances", map[string]string{"InstanceId.1": id})
	w.pass(time.Minute)
	left := w.Interfaces()
	if len(left) != 1 || left[0].Status != "available" || left[0].Instance != "" || left[0].ID != shown[1].ID {
		t.Errorf("once it is terminated there are %+v", left)
	}
	if got := w.call(t, "DescribeSubnets", map[string]string{"SubnetId.1": subnet}); !slices.Equal(got.Free, []int{10}) {
		t.Errorf("free addresses afterwards: %v", got.Free)
	}
}

func TestDescribeInterfaces(t *testing.T) {
	w := newWorld(t, nil)
	m := w.machines(t, 1)[0]
	a, b := w.plant(t, "10.0.0.10", ""), w.plant(t, "10.0.0.11", "2001:db8::11")
	ids := []string{w.primary(t, m).ID, a, b}
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
		got := w.call(t, "DescribeNetworkInterfaces", pairs(c.params))
		seen := got.Code
		for _, card := range got.Cards {
			seen += fmt.Sprint(slices.Index(ids, card.ID))
		}
		if seen != c.want {
			t.Errorf("%s: %s, want %s", c.params, seen, c.want)
		}
	}
	for range 4 {
		if _, err := w.PlantInterface(subnet, netip.Addr{}, netip.Addr{}, nil); err != nil {
			t.Fatal(err)
		}
	}
	first := w.call(t, "DescribeNetworkInterfaces", map[string]string{"MaxResults": "5"})
	second := w.call(t, "DescribeNetworkInterfaces", map[string]string{"MaxResults": "5", "NextToken": first.NextToken})
	if len(first.Cards) != 5 || len(second.Cards) != 2 || second.NextToken != "" {
		t.Errorf("pages: %+v, %+v", first, second)
	}
	for _, c := range []struct{ subnet, ipv4, ipv6 string }{
		{"subnet-0000000f", "10.0.0.12", ""}, {subnet, "10.0.0.10", ""}, {subnet, "10.0.0.3", ""}, {subnet, "10.0.0.12", "2001:db8::11"},
		{farSubnet, "10.0.1.9", "2001:db8::12"},
	} {
		six, _ := netip.ParseAddr(c.ipv6)
		if id, err := w.PlantInterface(c.subnet, netip.MustParseAddr(c.ipv4), six, nil); err == nil {
			t.Errorf("planted %s with %+v", id, c)
		}
	}
}

// TestAttachments: an interface moves from one machine to another, taking its time.
func TestAttachments(t *testing.T) {
	w := newWorld(t, func(cfg *awsfake.Config) { cfg.Attach, cfg.Detach = 3*time.Second, 5*time.Second })
	ms := w.machines(t, 2)
	eni := w.plant(t, "10.0.0.12", "")
	attach := func(m string) reply {
		return w.call(t, "AttachNetworkInterface", map[string]string{"NetworkInterfaceId": eni, "InstanceId": m, "DeviceIndex": "1"})
	}
	want := func(status, attached, machine string) {
		t.Helper()
		if got := w.card(t, eni); got.Status != status || got.Attached != attached || got.Instance != machine {
			t.Errorf("%+v; want %s, %s in %q", got, status, attached, machine)
		}
	}
	want("available", "", "")
	first := attach(ms[0])
	want("attaching", "attaching", ms[0])
	w.pass(3 * time.Second)
	want("in-use", "attached", ms[0])
	if got := attach(ms[1]); got.Code != "InvalidNetworkInterface.InUse" {
		t.Errorf("attached twice: %+v", got)
	}
	for range 2 {
		if got := w.call(t, "DetachNetworkInterface", map[string]string{"AttachmentId": first.Attached}); !got.Return {
			t.Errorf("detach: %+v", got)
		}
	}
	want("detaching", "detaching", ms[0])
	if got := attach(ms[1]); got.Code != "InvalidNetworkInterface.InUse" {
		t.Errorf("attached while it is detached: %+v", got)
	}
	w.pass(5 * time.Second)
	want("available", "", "")
	second := attach(ms[0])
	if second.Attached == first.Attached || second.Status != http.StatusOK {
		t.Errorf("the second attachment: %+v", second)
	}
	got := w.call(t, "DetachNetworkInterface", map[string]string{"AttachmentId": first.Attached, "Force": "true"})
	if got.Code != "InvalidAttachmentID.NotFound" {
		t.Errorf("an attachment that has ended: %+v", got)
	}
	if err := w.Kill(ms[0], "Server.InternalError", "the host died"); err != nil {
		t.Fatal(err)
	}
	w.pass(time.Minute)
	want("available", "", "")
}

// TestForce: what hangs lets go by force alone, and its index is lost.
func TestForce(t *testing.T) {
	w := newWorld(t, func(cfg *awsfake.Config) { cfg.Detach = time.Second })
	m := w.machines(t, 1)[0]
	eni := w.plant(t, "10.0.0.12", "")
	attach := func(index string) reply {
		return w.call(t, "AttachNetworkInterface", map[string]string{"NetworkInterfaceId": eni, "InstanceId": m, "DeviceIndex": index})
	}
	detach := func(force string) {
		t.Helper()
		got := w.call(t, "DetachNetworkInterface", map[string]string{"AttachmentId": w.card(t, eni).Attachment, "Force": force})
		if !got.Return {
			t.Errorf("detach: %+v", got)
		}
	}
	attach("1")
	if err := w.Hang(m); err != nil {
		t.Fatal(err)
	}
	detach("false")
	w.pass(time.Hour)
	if got := w.card(t, eni); got.Status != "detaching" {
		t.Errorf("it hangs: %+v", got)
	}
	detach("true")
	w.pass(time.Second)
	if got := w.card(t, eni); got.Status != "available" {
		t.Errorf("by force: %+v", got)
	}
	if got := attach("1"); got.Code != "InvalidParameterValue" || !strings.Contains(got.Message, "device index '1'") {
		t.Errorf("at the index that was lost: %+v", got)
	}
	if got := attach("2"); got.Attached == "" {
		t.Errorf("at another: %+v", got)
	}
	if w.Hang("i-0") == nil {
		t.Error("what is not there hangs")
	}
}

func TestRefusedAttachments(t *testing.T) {
	w := newWorld(t, nil)
	m := w.machines(t, 1)[0]
	young := w.run(t, map[string]string{"ClientToken": "young"})
	eni := w.plant(t, "10.0.0.12", "")
	far, err := w.PlantInterface(farSubnet, netip.Addr{}, netip.Addr{}, nil)
	if err != nil {
		t.Fatal(err)
	}
	full := w.run(t, map[string]string{
		"ClientToken": "full", "SubnetId": "", "NetworkInterface.1.DeviceIndex": "0", "NetworkInterface.1.SubnetId": subnet,
		"NetworkInterface.2.DeviceIndex": "1", "NetworkInterface.2.SubnetId": subnet, "NetworkInterface.3.DeviceIndex": "2",
		"NetworkInterface.3.SubnetId": subnet,
	})
	if err := w.Stop(full); err != nil {
		t.Fatal(err)
	}
	w.pass(time.Minute)
	own := w.primary(t, m)
	young2 := w.run(t, map[string]string{"ClientToken": "younger"})
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
		if got := w.call(t, c.action, pairs(c.params)); got.Code != c.code || got.Status != http.StatusBadRequest {
			t.Errorf("%s %s: %+v; want %s", c.action, c.params, got, c.code)
		}
	}
	if got := w.card(t, eni); got.Status != "available" {
		t.Errorf("refused calls attached it: %+v", got)
	}
}

func TestRefusedInterfacesOfLaunches(t *testing.T) {
	w := newWorld(t, nil)
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
			w.plant(t, "10.0.0.12", "")
		}
		params := launch(first)
		maps.Copy(params, pairs(c.params))
		if got := w.call(t, "RunInstances", params); got.Code != c.code {
			t.Errorf("%s: %+v; want %s", c.params, got, c.code)
		}
	}
	params := launch(first)
	for n := 2; n <= 4; n++ {
		params[fmt.Sprintf("NetworkInterface.%d.DeviceIndex", n)] = fmt.Sprint(n)
		params[fmt.Sprintf("NetworkInterface.%d.SubnetId", n)] = subnet
	}
	if got := w.call(t, "RunInstances", params); got.Code != "AttachmentLimitExceeded" {
		t.Errorf("four interfaces: %+v", got)
	}
}

// TestInterfacesLag: reads show interfaces as they were, as they do machines.
func TestInterfacesLag(t *testing.T) {
	w := newWorld(t, func(cfg *awsfake.Config) { cfg.Lag = 10 * time.Second })
	m := w.machines(t, 1)[0]
	eni := w.plant(t, "10.0.0.12", "")
	w.pass(time.Minute)
	w.call(t, "AttachNetworkInterface", map[string]string{"NetworkInterfaceId": eni, "InstanceId": m, "DeviceIndex": "1"})
	w.pass(5 * time.Second)
	seen := map[string]bool{}
	for range 100 {
		seen[w.card(t, eni).Status] = true
	}
	if !seen["available"] || !seen["in-use"] || len(seen) != 2 {
		t.Errorf("reads within the lag show %v", seen)
	}
	w.pass(10 * time.Second)
	if got := w.card(t, eni); got.Status != "in-use" {
		t.Errorf("after the lag: %+v", got)
	}
}
