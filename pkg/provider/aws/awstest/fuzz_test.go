package awstest

import (
	"errors"
	"net/netip"
	"strings"
	"testing"
	"time"
	"unicode/utf8"
)

// FuzzForm: any body gets a reply or an error with a code, and an accepted one was parsed
// correctly.
func FuzzForm(f *testing.F) {
	for _, body := range []string{
		"", "Version=2016-11-15", "Action=RunInstances&Version=2016-11-15&ImageId=ami-00000001&MinCount=1&MaxCount=1",
		"Action=DescribeInstances&Version=2016-11-15&Filter.1.Name=tag:a&Filter.1.Value.1=*&MaxResults=5&NextToken=c2tpcDo1",
		"Action=TerminateInstances&Version=2016-11-15&InstanceId.1=i-00000001&InstanceId.2=x", "Version=2016-11-15&A=1&A=2", "%zz",
		"Action=RegisterTargets&Version=2016-11-15&TargetGroupArn=a&Targets.member.1.Id=i-0&Targets.member.1.Port=0",
		"Action=DescribeImages&Version=2016-11-15&Owner.1=self&Owner.3=x", "Action=DescribeSubnets&Version=2016-11-15&SubnetId.9999999999=1",
	} {
		f.Add(body)
	}
	inhabited := func() *Cloud {
		cloud := New(Config{
			Now: func() time.Time { return time.Unix(1, 0) },
			Subnets: []Subnet{
				{ID: "subnet-00000001", CIDR: netip.MustParsePrefix("10.0.0.0/28"), IPv6: netip.MustParsePrefix("2001:db8::/64")},
			},
		})
		cloud.AddMachine("subnet-00000001", nil, false)
		if _, err := cloud.AddInterface("subnet-00000001", netip.Addr{}, netip.Addr{}, nil); err != nil {
			f.Fatal(err)
		}
		return cloud
	}
	cards := inhabited().Interfaces() // ids are the same in each cloud
	for _, form := range []string{
		"Action=AttachNetworkInterface&NetworkInterfaceId=" + cards[1].ID + "&DeviceIndex=1&InstanceId=" + cards[0].Instance,
		"Action=DetachNetworkInterface&Force=true&AttachmentId=" + cards[0].Attachment,
		"Action=AssignPrivateIpAddresses&AllowReassignment=true&PrivateIpAddress.1=10.0.0.9&NetworkInterfaceId=" + cards[0].ID,
		"Action=UnassignPrivateIpAddresses&PrivateIpAddress.1=10.0.0.4&NetworkInterfaceId=" + cards[0].ID,
		"Action=AssignIpv6Addresses&Ipv6Addresses.1=2001:db8::9&Ipv6Addresses.2=::ffff:10.0.0.1&NetworkInterfaceId=" + cards[1].ID,
		"Action=DescribeNetworkInterfaces&Filter.1.Name=attachment.device-index&Filter.1.Value.1=?",
	} {
		f.Add(form + "&Version=2016-11-15")
	}
	f.Fuzz(func(t *testing.T, body string) {
		p, err := parseForm(versionEC2, body)
		if err == nil {
			cloud := inhabited()
			for _, s := range services() {
				for _, a := range s.actions {
					if err = p.rejectUnknown(a.params); err == nil {
						_, err = a.perform(cloud, p)
					}
					check(t, body, err)
				}
			}
			if again, err := parseForm(versionEC2, p.canonical()); err != nil || again.canonical() != p.canonical() {
				t.Errorf("%q: read again it is %v, %v", body, again, err)
			}
		}
		check(t, body, err)
	})
}

// FuzzJSON does the same for JSON 1.1.
func FuzzJSON(f *testing.F) {
	for _, body := range []string{
		"", "{}", "null", `{"SecretId":"a"}`, `{"Name":"/a","WithDecryption":true}`, `{"Name":"a","Value":"b","Type":"String","Overwrite":null}`,
		`{"Name":"a","ClientRequestToken":"00000000000000000000000000000000","SecretBinary":"AAE="}`, `{"Name":[1]}`, `{"Name":1e999}`,
	} {
		f.Add(body)
	}
	f.Fuzz(func(t *testing.T, body string) {
		p, err := parseJSON(body)
		check(t, body, err)
		if err != nil {
			return
		}
		cloud := New(Config{Now: func() time.Time { return time.Unix(1, 0) }})
		for _, s := range services() {
			for _, a := range s.actions {
				if err = p.rejectUnknown(a.params); err == nil {
					_, err = a.perform(cloud, p)
				}
				check(t, body, err)
			}
		}
	})
}

// TestActionsAreOfOneService: action names are unique across services, as faults, throttles and
// calls need.
func TestActionsAreOfOneService(t *testing.T) {
	seen := map[string]string{}
	for _, s := range services() {
		for name := range s.actions {
			if seen[name] != "" {
				t.Errorf("%s is an action of %s and of %s", name, seen[name], s.name)
			}
			seen[name] = s.name
		}
	}
}

func check(t *testing.T, body string, err error) {
	t.Helper()
	var refused *Error
	if err != nil && (!errors.As(err, &refused) || refused.Code == "" || refused.Status < 400) {
		t.Errorf("%q: %v is no refusal of EC2", body, err)
	}
}

// FuzzWild: a value matches itself once it is escaped, and a star matches everything.
func FuzzWild(f *testing.F) {
	f.Add("a?b", "a*b")
	f.Add(`a\*`, "x")
	f.Fuzz(func(t *testing.T, value, other string) {
		if !utf8.ValidString(value) || !utf8.ValidString(other) {
			t.Skip("XML has no such texts")
		}
		escaped := strings.NewReplacer(`\`, `\\`, `*`, `\*`, `?`, `\?`).Replace(value)
		matches := func(pattern, value string) bool { return matchWildcards([]rune(pattern), []rune(value)) }
		if !matches(escaped, value) || !matches("*", value) || !matches("*"+escaped+"*", other+value) {
			t.Errorf("%q does not match itself", value)
		}
		if matchWildcards([]rune(escaped), []rune(other)) != (value == other) {
			t.Errorf("%q and %q", value, other)
		}
	})
}
