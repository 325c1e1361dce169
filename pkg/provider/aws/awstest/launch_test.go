package awstest_test

import (
	"encoding/base64"
	"fmt"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/nstance/nstance/pkg/provider/aws/awstest"
)

func TestRefusedLaunches(t *testing.T) {
	tags := map[string]string{"TagSpecification.1.ResourceType": "instance"}
	for n := range 51 {
		tags[fmt.Sprintf("TagSpecification.1.Tag.%d.Key", n+1)] = fmt.Sprint("k", n)
	}
	tag := func(key, value string) map[string]string {
		return map[string]string{
			"TagSpecification.1.ResourceType": "instance", "TagSpecification.1.Tag.1.Key": key, "TagSpecification.1.Tag.1.Value": value,
		}
	}
	for _, c := range []struct {
		name   string
		change map[string]string
		code   string
		says   string
	}{
		{"unknown parameter", map[string]string{"Size": "huge"}, "UnknownParameter", "Size"},
		{"unknown parameter deep down", map[string]string{"BlockDeviceMapping.1.Ebs.Colour": "red"}, "UnknownParameter", "Ebs.Colour"},
		{"dry run", map[string]string{"DryRun": "true"}, "UnknownParameter", "DryRun"},
		{"no image", map[string]string{"ImageId": ""}, "MissingParameter", "ImageId"},
		{"malformed image", map[string]string{"ImageId": "ami-x"}, "InvalidAMIID.Malformed", ""},
		{"no such image", map[string]string{"ImageId": "ami-0000000f"}, "InvalidAMIID.NotFound", ""},
		{"pending image", map[string]string{"ImageId": "ami-00000002"}, "InvalidAMIID.Unavailable", ""},
		{"no such type", map[string]string{"InstanceType": "x.y"}, "InvalidParameterValue", "x.y"},
		{"another architecture", map[string]string{"InstanceType": "m7g.large"}, "InvalidParameterValue", "arm64"},
		{"two at once", map[string]string{"MaxCount": "2"}, "InvalidParameterValue", "MaxCount"},
		{"no count", map[string]string{"MinCount": ""}, "MissingParameter", "MinCount"},
		{"no number", map[string]string{"MinCount": "one"}, "InvalidParameterValue", "MinCount"},
		{"long token", map[string]string{"ClientToken": strings.Repeat("x", 65)}, "InvalidParameterValue", "64"},
		{"token that is not ASCII", map[string]string{"ClientToken": "é"}, "InvalidParameterValue", "ASCII"},
		{"no subnet", map[string]string{"SubnetId": ""}, "MissingInput", ""},
		{"malformed subnet", map[string]string{"SubnetId": "subnet-a"}, "InvalidSubnetID.Malformed", ""},
		{"no such subnet", map[string]string{"SubnetId": "subnet-0000000f"}, "InvalidSubnetID.NotFound", ""},
		{"malformed group", map[string]string{"SecurityGroupId.1": "web"}, "InvalidGroupId.Malformed", ""},
		{"gap in a list", map[string]string{"SecurityGroupId.2": "sg-00000001"}, "MissingParameter", "SecurityGroupId.1"},
		{"index 01", map[string]string{"SecurityGroupId.01": "sg-00000001"}, "InvalidParameterValue", "01"},
		{"interfaces beside a subnet", map[string]string{"NetworkInterface.1.DeviceIndex": "0"}, "InvalidParameterCombination", "SubnetId"},
		{
			"interfaces beside groups",
			map[string]string{"SubnetId": "", "SecurityGroupId.1": "sg-00000001", "NetworkInterface.1.DeviceIndex": "0"},
			"InvalidParameterCombination", "SecurityGroupId",
		},
		{
			"no first interface", map[string]string{"SubnetId": "", "NetworkInterface.1.DeviceIndex": "1"},
			"InvalidParameterCombination", "device index 0",
		},
		{
			"one index twice", map[string]string{
				"SubnetId": "", "NetworkInterface.1.DeviceIndex": "0", "NetworkInterface.2.DeviceIndex": "0",
			}, "InvalidParameterValue", "Duplicate",
		},
		{"user data that is not base64", map[string]string{"UserData": "#!/bin/sh"}, "InvalidUserData.Malformed", ""},
		{
			"too much user data", map[string]string{"UserData": base64.StdEncoding.EncodeToString(make([]byte, 16<<10+1))},
			"InvalidParameterValue", "16384",
		},
		{"wrong flag", map[string]string{"DisableApiTermination": "yes"}, "InvalidParameterValue", "yes"},
		{"tokens of metadata", map[string]string{"MetadataOptions.HttpTokens": "never"}, "InvalidParameterValue", "never"},
		{"hops of metadata", map[string]string{"MetadataOptions.HttpPutResponseHopLimit": "65"}, "InvalidParameterValue", "65"},
		{"another market", map[string]string{"InstanceMarketOptions.MarketType": "black"}, "InvalidParameterValue", "black"},
		{"no market", map[string]string{"InstanceMarketOptions.SpotOptions.MaxPrice": "1"}, "MissingParameter", "MarketType"},
		{"too many tags", tags, "TagLimitExceeded", "51"},
		{"long key", tag(strings.Repeat("é", 129), ""), "InvalidParameterValue", "128"},
		{"long value", tag("k", strings.Repeat("é", 257)), "InvalidParameterValue", "256"},
		{"reserved key", tag("AWS:x", ""), "InvalidParameterValue", "aws:"},
		{"tags of nothing", map[string]string{"TagSpecification.1.ResourceType": "cloud"}, "InvalidParameterValue", "cloud"},
		{
			"tags of a request for spot", map[string]string{"TagSpecification.1.ResourceType": "spot-instances-request"},
			"InvalidParameterCombination", "spot",
		},
	} {
		t.Run(c.name, func(t *testing.T) {
			f := newFixture(t, nil)
			got := f.call(t, "RunInstances", launch(c.change))
			if got.Status != http.StatusBadRequest || got.Code != c.code || !strings.Contains(got.Message, c.says) || got.RequestID == "" {
				t.Errorf("%+v; want 400 %s that says %q", got, c.code, c.says)
			}
			if made := f.Machines(); len(made) != 0 {
				t.Errorf("a refused launch made %+v", made)
			}
		})
	}
}

func TestLaunch(t *testing.T) {
	f := newFixture(t, nil)
	id := f.run(t, map[string]string{
		"SubnetId": "", "NetworkInterface.1.DeviceIndex": "0", "NetworkInterface.1.SubnetId": subnet,
		"NetworkInterface.1.SecurityGroupId.1": "sg-00000001", "NetworkInterface.2.DeviceIndex": "1", "NetworkInterface.2.SubnetId": subnet,
		"UserData": base64.StdEncoding.EncodeToString([]byte("hello")), "InstanceMarketOptions.MarketType": "spot",
		"TagSpecification.1.ResourceType": "instance", "TagSpecification.1.Tag.1.Key": "team", "TagSpecification.1.Tag.1.Value": "ops",
		"TagSpecification.2.ResourceType": "volume",
	})
	made := f.Machines()
	if len(made) != 1 || made[0].ID != id || made[0].State != "pending" || made[0].Subnet != subnet || string(made[0].UserData) != "hello" ||
		made[0].Tags["team"] != "ops" || made[0].Params["NetworkInterface.2.DeviceIndex"] != "1" {
		t.Errorf("made %+v", made)
	}
}

// TestClientTokens: only the token decides whether another machine is launched.
func TestClientTokens(t *testing.T) {
	f := newFixture(t, func(cfg *awstest.Config) { cfg.InstanceLimit = 1 })
	id := f.run(t, nil)
	if again := f.run(t, nil); again != id { // although there is no capacity for another
		t.Errorf("the same launch made %s, and then %s", id, again)
	}
	got := f.call(t, "RunInstances", launch(map[string]string{"KeyName": "other"}))
	if got.Code != "IdempotentParameterMismatch" || got.Status != 400 {
		t.Errorf("with another key: %+v", got)
	}
	f.call(t, "TerminateInstances", map[string]string{"InstanceId.1": id})
	f.pass(time.Minute)
	for range 2 {
		if got := f.call(t, "RunInstances", launch(nil)); got.Code != "IdempotentInstanceTerminated" || got.Status != 400 {
			t.Errorf("once it is terminated: %+v", got)
		}
		f.pass(2 * time.Hour) // also once it is forgotten
	}
	if other := f.run(t, map[string]string{"ClientToken": "two"}); other == id {
		t.Error("another token got the same machine")
	}
}

// TestTokenOfARefusedLaunch: a launch that was refused for lack of capacity keeps its client token.
// The same launch may be repeated with it, but no other.
func TestTokenOfARefusedLaunch(t *testing.T) {
	f := newFixture(t, nil)
	f.SetCapacity("t3.small", subnet, 0)
	if got := f.call(t, "RunInstances", launch(nil)); got.Code != "InsufficientInstanceCapacity" {
		t.Fatalf("without capacity: %+v", got)
	}
	f.SetCapacity("t3.small", subnet, 1)
	for range 2 {
		got := f.call(t, "RunInstances", launch(map[string]string{"UserData": "aGVsbG8="}))
		if got.Code != "IdempotentParameterMismatch" || got.Status != http.StatusBadRequest || len(f.Machines()) != 0 {
			t.Errorf("with other user data: %+v", got)
		}
		f.pass(48 * time.Hour)
	}
	id := f.run(t, nil)
	if other := f.call(t, "RunInstances", launch(map[string]string{"KeyName": "x"})); other.Code != "IdempotentParameterMismatch" {
		t.Errorf("another launch under the token that made %s: %+v", id, other)
	}
	noImage := map[string]string{"ClientToken": "bad", "ImageId": "ami-x"}
	if got := f.call(t, "RunInstances", launch(noImage)); got.Status != http.StatusBadRequest {
		t.Fatalf("a launch of no image: %+v", got)
	}
	f.SetCapacity("t3.small", subnet, 2)
	f.run(t, map[string]string{"ClientToken": "bad"}) // an invalid launch does not keep its token
}

func TestRoom(t *testing.T) {
	fill := func(t *testing.T, f *fixture, n int) {
		for i := range n {
			f.run(t, map[string]string{"ClientToken": fmt.Sprint("t", i)})
		}
	}
	for _, c := range []struct {
		name   string
		change func(*awstest.Config)
		room   int
		hand   func(*awstest.Cloud)
		code   string
		status int
	}{
		{"addresses", nil, 11, nil, "InsufficientFreeAddressesInSubnet", 400},
		{"capacity", nil, 2, func(c *awstest.Cloud) { c.SetCapacity("t3.small", subnet, 2) }, "InsufficientInstanceCapacity", 500},
		{"machines", func(cfg *awstest.Config) { cfg.InstanceLimit = 3 }, 3, nil, "InstanceLimitExceeded", 400},
		{"processors", func(cfg *awstest.Config) { cfg.VCPULimit = 5 }, 2, nil, "VcpuLimitExceeded", 400},
	} {
		t.Run(c.name, func(t *testing.T) {
			f := newFixture(t, c.change)
			if c.hand != nil {
				c.hand(f.Cloud)
			}
			fill(t, f, c.room)
			if got := f.call(t, "RunInstances", launch(map[string]string{"ClientToken": "more"})); got.Code != c.code || got.Status != c.status {
				t.Errorf("%d after %d launches: %+v; want %d %s", got.Status, c.room, got, c.status, c.code)
			}
			f.call(t, "TerminateInstances", map[string]string{"InstanceId.1": f.Machines()[0].ID})
			f.pass(time.Minute)
			f.run(t, map[string]string{"ClientToken": "more"})
		})
	}
}
