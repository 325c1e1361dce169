package awstest_test

import (
	"fmt"
	"net/http"
	"slices"
	"testing"
)

func TestAssignPrivateAddresses(t *testing.T) {
	f := newFixture(t, nil)
	ms := f.machines(t, 2)
	a, b := f.primary(t, ms[0]), f.primary(t, ms[1])
	assign := func(id, more string) reply {
		return f.call(t, "AssignPrivateIpAddresses", pairs("NetworkInterfaceId="+id+" "+more))
	}
	holds := func(id string, want ...string) {
		t.Helper()
		if got := f.nic(t, id).Addresses; !slices.Equal(got, want) {
			t.Errorf("%s has %v, want %v", id, got, want)
		}
	}
	for range 2 {
		if got := assign(a.ID, "PrivateIpAddress.1=10.0.0.12"); !slices.Equal(got.Assigned, []string{"10.0.0.12"}) {
			t.Errorf("assign: %+v", got)
		}
	}
	if got := assign(b.ID, "PrivateIpAddress.1=10.0.0.12"); got.Code != "InvalidIPAddress.InUse" {
		t.Errorf("what another has: %+v", got)
	}
	if got := assign(b.ID, "PrivateIpAddress.1=10.0.0.11 PrivateIpAddress.2=10.0.0.12 AllowReassignment=true"); got.Status != http.StatusOK {
		t.Errorf("reassign: %+v", got)
	}
	holds(a.ID, "10.0.0.4")
	holds(b.ID, "10.0.0.5", "10.0.0.11", "10.0.0.12")
	if got := f.call(t, "DescribeSubnets", map[string]string{"SubnetId.1": subnet}); !slices.Equal(got.Free, []int{7}) {
		t.Errorf("free addresses: %v", got.Free)
	}
	for _, c := range []struct{ params, code string }{
		{"PrivateIpAddress.1=10.0.0.5 AllowReassignment=true", "InvalidParameterValue"}, // the primary address of another interface
		{"PrivateIpAddress.1=10.0.1.5", "InvalidParameterValue"},
		{"PrivateIpAddress.1=10.0.0.3", "InvalidParameterValue"},
		{"PrivateIpAddress.1=10.0.0.15", "InvalidParameterValue"},
		{"PrivateIpAddress.1=2001:db8::1", "InvalidParameterValue"},
		{"PrivateIpAddress.1=10.0.0.9 PrivateIpAddress.2=10.0.0.9", "InvalidParameterValue"},
		{"PrivateIpAddress.1=10.0.0.9 AllowReassignment=maybe", "InvalidParameterValue"},
		{"PrivateIpAddress.1=10.0.0.6 PrivateIpAddress.2=10.0.0.7 PrivateIpAddress.3=10.0.0.8 PrivateIpAddress.4=10.0.0.9",
			"PrivateIpAddressLimitExceeded"},
		{"SecondaryPrivateIpAddressCount=1", "UnknownParameter"},
		{"", "MissingParameter"},
	} {
		if got := assign(a.ID, c.params); got.Code != c.code || got.Status != http.StatusBadRequest {
			t.Errorf("assign %s: %+v; want %s", c.params, got, c.code)
		}
	}
	if got := assign(anEmptyID, "PrivateIpAddress.1=10.0.0.9"); got.Code != "InvalidNetworkInterfaceID.NotFound" {
		t.Errorf("to no machine: %+v", got)
	}
	holds(a.ID, "10.0.0.4")
	for _, c := range []struct{ address, code string }{
		{"10.0.0.5", "InvalidParameterValue"}, {"10.0.0.9", "InvalidParameterValue"}, {"10.0.0.12", ""}, {"10.0.0.12", "InvalidParameterValue"},
	} {
		got := f.call(t, "UnassignPrivateIpAddresses", pairs("NetworkInterfaceId="+b.ID+" PrivateIpAddress.1="+c.address))
		if got.Code != c.code || got.Return != (c.code == "") {
			t.Errorf("unassign %s: %+v; want %q", c.address, got, c.code)
		}
	}
	holds(b.ID, "10.0.0.5", "10.0.0.11")
}

func TestAssignIPv6(t *testing.T) {
	f := newFixture(t, nil)
	ms := f.machines(t, 2)
	a, b := f.primary(t, ms[0]).ID, f.primary(t, ms[1]).ID
	address := "2001:db8::9"
	call := func(action, id, address string) string {
		got := f.call(t, action, pairs("NetworkInterfaceId="+id+" Ipv6Addresses.1="+address))
		return fmt.Sprint(got.Code, got.Assigned6)
	}
	for n, c := range []struct{ action, id, address, want string }{
		{"AssignIpv6Addresses", a, address, "[2001:db8::9]"},
		{"AssignIpv6Addresses", a, address, "[2001:db8::9]"},
		{"AssignIpv6Addresses", b, address, "InvalidIPAddress.InUse[]"},
		{"AssignIpv6Addresses", b, "2001:db9::9", "InvalidParameterValue[]"},
		{"AssignIpv6Addresses", b, "fe80::1%eth0", "InvalidParameterValue[]"},
		{"AssignIpv6Addresses", b, "10.0.0.9", "InvalidParameterValue[]"},
		{"UnassignIpv6Addresses", b, address, "InvalidParameterValue[]"},
		{"UnassignIpv6Addresses", a, address, "[]"},
		{"AssignIpv6Addresses", b, address, "[2001:db8::9]"},
	} {
		if got := call(c.action, c.id, c.address); got != c.want {
			t.Errorf("%d: %s %s: %s, want %s", n, c.action, c.address, got, c.want)
		}
	}
	if got := f.nic(t, b); !slices.Equal(got.IPv6, []string{address}) {
		t.Errorf("in the end: %+v", got)
	}
	params := "NetworkInterfaceId=" + a
	for n := range 5 {
		params += fmt.Sprintf(" Ipv6Addresses.%d=2001:db8::a%d", n+1, n)
	}
	if got := f.call(t, "AssignIpv6Addresses", pairs(params)); got.Code != "PrivateIpAddressLimitExceeded" {
		t.Errorf("five of them: %+v", got)
	}
}
