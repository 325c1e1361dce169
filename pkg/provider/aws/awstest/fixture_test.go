package awstest_test

import (
	"encoding/xml"
	"io"
	"maps"
	"net/http"
	"net/http/httptest"
	"net/netip"
	"net/url"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/nstance/nstance/pkg/provider/aws/awstest"
)

const (
	subnet = "subnet-0000000a"
	image  = "ami-00000001"

	farSubnet = "subnet-0000000b" // in another zone
)

// fixture is a cloud with a manual clock.
type fixture struct {
	*awstest.Cloud
	url string

	mu  sync.Mutex
	now time.Time
}

func (f *fixture) time() time.Time {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.now
}

func (f *fixture) pass(d time.Duration) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.now = f.now.Add(d)
}

func newFixture(t *testing.T, change func(*awstest.Config)) *fixture {
	t.Helper()
	f := &fixture{now: time.Date(2030, 1, 2, 3, 4, 5, 0, time.UTC)}
	cfg := awstest.Config{
		Now: f.time, Boot: time.Minute, Shutdown: time.Minute,
		Subnets: []awstest.Subnet{
			{
				ID: subnet, VPC: "vpc-0000000a", Zone: "us-east-1a", CIDR: netip.MustParsePrefix("10.0.0.0/28"),
				IPv6: netip.MustParsePrefix("2001:db8::/64"),
			},
			{ID: farSubnet, VPC: "vpc-0000000a", Zone: "us-east-1b", CIDR: netip.MustParsePrefix("10.0.1.0/28")},
		},
		Images: []awstest.Image{
			{ID: image, Owner: "123456789012", Name: "agent", Arch: "x86_64", State: "available", CreatedAt: f.now},
			{ID: "ami-00000002", Owner: "1", OwnerAlias: "amazon", Name: "other", Arch: "arm64", State: "pending", CreatedAt: f.now},
		},
		InstanceTypes: []awstest.InstanceType{
			{Name: "t3.small", CPUs: 2, MemoryMiB: 2048, Arch: "x86_64", Interfaces: 3, AddressesEach: 4},
			{Name: "m7g.large", CPUs: 2, MemoryMiB: 8192, Arch: "arm64"},
		},
	}
	if change != nil {
		change(&cfg)
	}
	f.Cloud = awstest.New(cfg)
	server := httptest.NewServer(f.Cloud)
	t.Cleanup(server.Close)
	f.url = server.URL
	return f
}

// reply has the fields of all replies that these tests check.
type reply struct {
	Status    int
	Code      string   `xml:"Errors>Error>Code"`
	Message   string   `xml:"Errors>Error>Message"`
	RequestID string   `xml:"RequestID"`
	Launched  []string `xml:"instancesSet>item>instanceId"`
	Found     []found  `xml:"reservationSet>item>instancesSet>item"`
	Free      []int    `xml:"subnetSet>item>availableIpAddressCount"`
	Images    []string `xml:"imagesSet>item>imageId"`
	Types     []string `xml:"instanceTypeSet>item>instanceType"`
	NextToken string   `xml:"nextToken"`
	Attached  string   `xml:"attachmentId"`
	Return    bool     `xml:"return"`
	Cards     []nic    `xml:"networkInterfaceSet>item"`
	Assigned  []string `xml:"assignedPrivateIpAddressesSet>item>privateIpAddress"`
	Assigned6 []string `xml:"assignedIpv6Addresses>item"`
}

// nic has the fields of an interface that these tests check.
type nic struct {
	ID         string   `xml:"networkInterfaceId"`
	Status     string   `xml:"status"`
	Zone       string   `xml:"availabilityZone"`
	MAC        string   `xml:"macAddress"`
	Attachment string   `xml:"attachment>attachmentId"`
	Instance   string   `xml:"attachment>instanceId"`
	Index      int      `xml:"attachment>deviceIndex"`
	Attached   string   `xml:"attachment>status"`
	Addresses  []string `xml:"privateIpAddressesSet>item>privateIpAddress"`
	IPv6       []string `xml:"ipv6AddressesSet>item>ipv6Address"`
}

type found struct {
	ID    string `xml:"instanceId"`
	State string `xml:"instanceState>name"`
	Why   string `xml:"stateReason>message"`
	Cards []nic  `xml:"networkInterfaceSet>item"`
}

func (f *fixture) request(t *testing.T, action string, params map[string]string) *http.Request {
	t.Helper()
	form := url.Values{"Action": {action}, "Version": {"2016-11-15"}}
	for name, value := range params {
		form.Set(name, value)
	}
	r, err := http.NewRequestWithContext(t.Context(), http.MethodPost, f.url, strings.NewReader(form.Encode()))
	if err != nil {
		t.Fatal(err)
	}
	r.Header.Set("Content-Type", "application/x-www-form-urlencoded")
	r.Header.Set("X-Amz-Date", f.time().Format("20060102T150405Z"))
	r.Header.Set("Authorization", "AWS4-HMAC-SHA256 Credential=AKID/"+f.time().Format("20060102")+"/us-east-1/ec2/aws4_request, "+
		"SignedHeaders=content-type;host;x-amz-date;x-amz-target, Signature="+strings.Repeat("a", 64))
	return r
}

func (f *fixture) do(t *testing.T, r *http.Request) (reply, error) {
	t.Helper()
	response, err := http.DefaultClient.Do(r)
	if err != nil {
		return reply{}, err
	}
	defer response.Body.Close()
	out := reply{Status: response.StatusCode}
	body, err := io.ReadAll(response.Body)
	if err == nil {
		err = xml.Unmarshal(body, &out)
	}
	return out, err
}

func (f *fixture) call(t *testing.T, action string, params map[string]string) reply {
	t.Helper()
	out, err := f.do(t, f.request(t, action, params))
	if err != nil {
		t.Fatal(err)
	}
	return out
}

// launch returns the parameters of a launch with changes; an empty value removes one.
func launch(changes map[string]string) map[string]string {
	params := map[string]string{
		"ImageId": image, "InstanceType": "t3.small", "MinCount": "1", "MaxCount": "1", "SubnetId": subnet, "ClientToken": "one",
	}
	maps.Copy(params, changes)
	maps.DeleteFunc(params, func(_, value string) bool { return value == "" })
	return params
}

func (f *fixture) run(t *testing.T, changes map[string]string) string {
	t.Helper()
	out := f.call(t, "RunInstances", launch(changes))
	if out.Status != http.StatusOK || len(out.Launched) != 1 {
		t.Fatalf("launch: %+v", out)
	}
	return out.Launched[0]
}
