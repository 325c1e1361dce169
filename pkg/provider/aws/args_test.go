package aws_test

import (
	"encoding/json"
	"errors"
	"fmt"
	"strings"
	"testing"

	"github.com/nstance/nstance/pkg/provider"
	"github.com/nstance/nstance/pkg/provider/aws"
)

// parse parses args as a config has them.
func parse(t *testing.T, text string) map[string]any {
	t.Helper()
	var args map[string]any
	if err := json.Unmarshal([]byte(text), &args); err != nil {
		t.Fatal(err)
	}
	return args
}

func tagList(n int) string {
	tags := make([]string, n)
	for i := range tags {
		tags[i] = fmt.Sprintf(`{"Key": "k%d", "Value": "v"}`, i)
	}
	return strings.Join(tags, ", ")
}

func TestArgs(t *testing.T) {
	const ok = `"ImageId": "ami-1"`
	for _, c := range []struct {
		args string
		want string // path: the error; empty: the args are valid
	}{
		{`{"ImageId": "ami-1"}`, ""},
		{`{"LaunchTemplate": {"LaunchTemplateName": "agent", "Version": "3"}}`, ""},
		{`{` + ok + `, "InstanceMarketOptions": {"MarketType": "spot", "SpotOptions": {"SpotInstanceType": "one-time", "MaxPrice": "0.01"}}}`,
			""},
		{`{` + ok + `, "SecurityGroupIds": ["sg-1", "sg-2"], "CpuOptions": {"CoreCount": 2}}`, ""},
		{`{` + ok + `, "NetworkInterfaces": [{"DeviceIndex": 0}, {"DeviceIndex": 0, "NetworkCardIndex": 1, "SubnetId": "subnet-1"}]}`, ""},

		{`{}`, "args.ImageId: required"},
		{`{"ImageId": ""}`, "args.ImageId: required"},
		{`{"ImageId": "resolve:ssm:golden"}`, `args.ImageId: "resolve:ssm:golden" makes EC2 read a parameter`},
		{`{` + ok + `, "Colour": "red"}`, "args.Colour: no such field (have: AdditionalInfo, BlockDeviceMappings,"},
		{`{"imageId": "ami-1"}`, "args.imageId: no such field: want ImageId"},
		{`{` + ok + `, "noSmithyDocumentSerde": {}}`, "args.noSmithyDocumentSerde: no such field"},
		{`{` + ok + `, "Placement": {"Zone": "a"}}`, "args.Placement.Zone: no such field (have: Affinity,"},
		{`{` + ok + `, "BlockDeviceMappings": [{}, {"Ebs": {"VolumeSize": "20"}}]}`,
			`args.BlockDeviceMappings[1].Ebs.VolumeSize: got the string "20": want a whole number of 32 bits`},
		{`{` + ok + `, "BlockDeviceMappings": [{"Ebs": {"VolumeSize": 20.5}}]}`,
			"args.BlockDeviceMappings[0].Ebs.VolumeSize: got the number 20.5"},
		{`{` + ok + `, "BlockDeviceMappings": [{"Ebs": {"VolumeSize": 3000000000}}]}`,
			"args.BlockDeviceMappings[0].Ebs.VolumeSize: got the number"},
		{`{` + ok + `, "BlockDeviceMappings": [{"Ebs": {"VolumeType": "gp9"}}]}`, `Ebs.VolumeType: "gp9" is not valid: want `},
		{`{` + ok + `, "BlockDeviceMappings": {}}`, "args.BlockDeviceMappings: got an object: want a list"},
		{`{` + ok + `, "EbsOptimized": "yes"}`, `args.EbsOptimized: got the string "yes": want true or false`},
		{`{` + ok + `, "KeyName": 1}`, "args.KeyName: got the number 1: want a string"},
		{`{` + ok + `, "KeyName": null}`, "args.KeyName: got null: want a string"},
		{`{` + ok + `, "KeyName": true}`, "args.KeyName: got true: want a string"},
		{`{` + ok + `, "Monitoring": []}`, "args.Monitoring: got a list: want an object"},
		{`{` + ok + `, "MetadataOptions": {"HttpTokens": "never"}}`,
			`args.MetadataOptions.HttpTokens: "never" is not valid: want optional, required`},
		{`{` + ok + `, "InstanceMarketOptions": {"SpotOptions": {"ValidUntil": "soon"}}}`, "SpotOptions.ValidUntil: got the string"},
		{`{` + ok + `, "InstanceMarketOptions": {"SpotOptions": {"SpotInstanceType": "persistent"}}}`,
			`SpotInstanceType: "persistent" is not valid`},

		{`{` + ok + `, "ClientToken": "x"}`, "args.ClientToken: set by the provider"},
		{`{` + ok + `, "MinCount": 1}`, "args.MinCount: set by the provider"},
		{`{` + ok + `, "MaxCount": 1}`, "args.MaxCount: set by the provider"},
		{`{` + ok + `, "UserData": "x"}`, "args.UserData: set by the provider: use userdata beside args"},
		{`{` + ok + `, "DryRun": true}`, "args.DryRun: set by the provider"},
		{`{` + ok + `, "SubnetId": "subnet-1"}`, "args.SubnetId: set by the provider: use subnet_pool"},
		{`{` + ok + `, "InstanceType": "t3.small"}`, "args.InstanceType: set by the provider: use instance_type beside args"},
		{`{` + ok + `, "DisableApiTermination": true}`, "args.DisableApiTermination: the provider must be able to terminate"},

		{`{` + ok + `, "NetworkInterfaces": [{"DeviceIndex": 0, "SubnetId": "subnet-1"}]}`,
			"args.NetworkInterfaces[0].SubnetId: set by the provider"},
		{`{` + ok + `, "NetworkInterfaces": [{"DeviceIndex": 1}]}`, "args.NetworkInterfaces: 0 interfaces have DeviceIndex 0"},
		{`{` + ok + `, "NetworkInterfaces": [{"DeviceIndex": 0}, {"DeviceIndex": 0}]}`, "args.NetworkInterfaces: 2 interfaces"},
		{`{` + ok + `, "NetworkInterfaces": [{}]}`, "args.NetworkInterfaces[0].DeviceIndex: required"},
		{`{` + ok + `, "NetworkInterfaces": [{"DeviceIndex": 0, "NetworkInterfaceId": "eni-1"}]}`,
			"args.NetworkInterfaces[0].NetworkInterfaceId: "},
		{`{` + ok + `, "NetworkInterfaces": [{"DeviceIndex": 0}], "SecurityGroupIds": ["sg-1"]}`,
			"args.SecurityGroupIds: not allowed beside args.NetworkInterfaces"},

		{`{` + ok + `, "TagSpecifications": [{"ResourceType": "instance", "Tags": [{"Key": "nstance:shard", "Value": "x"}]}]}`,
			`args.TagSpecifications[0].Tags[0].Key: "nstance:shard" is not valid`},
		{`{` + ok + `, "TagSpecifications": [{"ResourceType": "instance", "Tags": [{"Key": "aws:x"}]}]}`,
			"args.TagSpecifications[0].Tags[0]: the key"},
		{`{` + ok + `, "TagSpecifications": [{"ResourceType": "instance", "Tags": [{}]}]}`, "args.TagSpecifications[0].Tags[0]: the key"},
		{`{` + ok + `, "SecurityGroups": ["web"]}`, "args.SecurityGroups: not supported with a subnet"},
		{`{` + ok + `, "PrivateIpAddress": "10.0.0.9"}`, "args.PrivateIpAddress: every instance would get the same address"},
		{`{` + ok + `, "Ipv6Addresses": [{"Ipv6Address": "::1"}]}`, "args.Ipv6Addresses: every instance would get the same address"},
		{`{` + ok + `, "NetworkInterfaces": [{"DeviceIndex": 0, "PrivateIpAddress": "10.0.0.9"}]}`,
			"args.NetworkInterfaces[0].PrivateIpAddress: every instance would get the same address"},
		{`{` + ok + `, "NetworkInterfaces": [{"DeviceIndex": 0}, {"DeviceIndex": 1}, {"DeviceIndex": 1}]}`,
			"args.NetworkInterfaces[2].DeviceIndex: duplicate 1"},
		{`{` + ok + `, "NetworkInterfaces": [{"DeviceIndex": 0, "AssociatePublicIpAddress": true}, {"DeviceIndex": 1}]}`,
			"args.NetworkInterfaces[0].AssociatePublicIpAddress: only supported"},
		{`{` + ok + `, "NetworkInterfaces": [{"DeviceIndex": 0, "AssociatePublicIpAddress": true}]}`, ""},
		{`{` + ok + `, "InstanceMarketOptions": {"MarketType": "spot", "SpotOptions": {"InstanceInterruptionBehavior": "stop"}}}`,
			`InstanceInterruptionBehavior: "stop" is not valid`},
		{`{"LaunchTemplate": {}}`, "args.LaunchTemplate: want either LaunchTemplateId or LaunchTemplateName"},
		{`{` + ok + `, "TagSpecifications": [{"ResourceType": "volume", "Tags": [{"Key": "a", "Value": "1"}, {"Key": "a", "Value": "2"}]}]}`,
			`args.TagSpecifications[0].Tags[1].Key: duplicate "a"`},
		{`{` + ok + `, "TagSpecifications": [{"ResourceType": "instance", "Tags": [` + tagList(42) + `]}]}`,
			"args.TagSpecifications[0].Tags: 42 tags: want at most 41 besides the provider's own"},
		{`{` + ok + `, "TagSpecifications": [{"ResourceType": "volume", "Tags": [` + tagList(50) + `]}]}`, ""},
		{`{` + ok + `, "TagSpecifications": [{"Tags": []}]}`, "args.TagSpecifications[0].ResourceType: required"},
		{`{` + ok + `, "TagSpecifications": [{"ResourceType": "volume"}, {"ResourceType": "volume"}]}`,
			"args.TagSpecifications[1].ResourceType: "},
	} {
		err := aws.Config{}.CheckArgs(provider.Spec{Args: parse(t, c.args)})
		var fields provider.FieldErrors
		switch {
		case c.want == "" && err != nil:
			t.Errorf("%s: %v", c.args, err)
		case c.want != "" && (!errors.As(err, &fields) || !strings.Contains(fields[0].Path+": "+fields[0].Message, c.want)):
			t.Errorf("%s: %v, want %s", c.args, err, c.want)
		}
	}
}

// TestUserdataIsChecked: userdata that EC2 would refuse is an error of the config.
func TestUserdataIsChecked(t *testing.T) {
	for size, want := range map[int]string{
		0: "", 16 << 10: "", 16<<10 + 1: "userdata: 16385 bytes as rendered and encoded: EC2 takes at most 16384",
	} {
		spec := provider.Spec{Args: parse(t, `{"ImageId": "ami-0123456789abcdef0"}`), Userdata: make([]byte, size)}
		err := aws.Config{}.CheckArgs(spec)
		if (err == nil) != (want == "") || err != nil && !strings.Contains(err.Error(), want) {
			t.Errorf("%d bytes: %v, want %q", size, err, want)
		}
	}
}

// TestArgsReportAll: all errors are returned at once, always in the same order.
func TestArgsReportAll(t *testing.T) {
	args := parse(t, `{"Zebra": 1, "MinCount": 1, "KeyName": 2, "Ape": 1}`)
	first := aws.Config{}.CheckArgs(provider.Spec{Args: args})
	var fields provider.FieldErrors
	if !errors.As(first, &fields) || len(fields) != 4 {
		t.Fatalf("%v, want four errors", first)
	}
	for range 20 {
		if again := (aws.Config{}).CheckArgs(provider.Spec{Args: args}); again.Error() != first.Error() {
			t.Fatalf("%v, and then %v", first, again)
		}
	}
}

// FuzzArgs: any args are either valid or rejected with the names of their fields.
func FuzzArgs(f *testing.F) {
	for _, text := range []string{
		`{}`, `{"ImageId": "ami-1"}`, `{"ImageId": null, "BlockDeviceMappings": [null, 1, {"Ebs": {"Iops": 1e9}}]}`,
		`{"ImageId": "a", "NetworkInterfaces": [{"DeviceIndex": 0, "Ipv6Addresses": [{"Ipv6Address": "::1"}]}]}`,
		`{"ImageId": "a", "TagSpecifications": [{"ResourceType": "instance", "Tags": [{"Key": "a"}]}]}`,
		`{"InstanceMarketOptions": {"MarketType": "spot", "SpotOptions": {"ValidUntil": "2030-01-02T15:04:05Z"}}}`,
	} {
		f.Add([]byte(text))
	}
	f.Fuzz(func(t *testing.T, data []byte) {
		var args map[string]any
		if json.Unmarshal(data, &args) != nil {
			t.Skip("no args")
		}
		err := aws.Config{}.CheckArgs(provider.Spec{Args: args})
		var fields provider.FieldErrors
		if err != nil && (!errors.As(err, &fields) || len(fields) == 0) {
			t.Fatalf("%v is no error of fields", err)
		}
		for _, field := range fields {
			if !strings.HasPrefix(field.Path, "args") || field.Message == "" {
				t.Errorf("%+v: want a path below args, and what is wrong", field)
			}
		}
	})
}
