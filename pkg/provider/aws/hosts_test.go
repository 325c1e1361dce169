package aws_test

import (
	"errors"
	"log/slog"
	"net/http"
	"strings"
	"testing"

	"github.com/aws/aws-sdk-go-v2/service/ec2"

	"github.com/nstance/nstance/pkg/awsclient"
	"github.com/nstance/nstance/pkg/provider"
	"github.com/nstance/nstance/pkg/provider/aws"
)

// TestHostsAreTheSDKs: EC2's hosts are those of the SDK's own rules, in every partition and for
// every variant.
func TestHostsAreTheSDKs(t *testing.T) {
	for _, region := range []string{
		"us-east-1", "eu-central-1", "us-newplace-1", "us-gov-west-1", "cn-north-1", "eusc-de-east-1", "us-iso-east-1", "us-isob-east-1",
		"eu-isoe-west-1", "us-isof-south-1",
	} {
		for _, dual := range []bool{false, true} {
			for _, fips := range []bool{false, true} {
				want, err := ec2.NewDefaultEndpointResolverV2().ResolveEndpoint(t.Context(),
					ec2.EndpointParameters{Region: &region, UseDualStack: &dual, UseFIPS: &fips})
				if err != nil {
					t.Fatal(err)
				}
				got, err := awsclient.Hosts{Region: region, DualStack: dual, FIPS: fips}.URL(awsclient.EC2)
				if err != nil || got != want.URI.String() {
					t.Errorf("%s, dual stack %t, FIPS %t: %s, %v; the SDK has %s", region, dual, fips, got, err, &want.URI)
				}
			}
		}
	}
}

// target records which host is called.
type target struct{ hosts []string }

func (h *target) RoundTrip(r *http.Request) (*http.Response, error) {
	h.hosts = append(h.hosts, r.URL.Host)
	return &http.Response{StatusCode: http.StatusUnauthorized, Header: http.Header{}, Body: http.NoBody, Request: r}, nil
}

// TestPlaces: the provider calls the hosts that the environment selects, and none for a region of
// an unknown partition.
func TestPlaces(t *testing.T) {
	for name, c := range map[string]struct {
		region string
		env    map[string]string
		want   string
	}{
		"Sovereign Cloud": {"eusc-de-east-1", nil, "ec2.eusc-de-east-1.amazonaws.eu"},
		"FIPS":            {"us-east-1", map[string]string{"AWS_USE_FIPS_ENDPOINT": "true"}, "ec2-fips.us-east-1.amazonaws.com"},
		"FIPS, dual stack": {
			"us-east-1", map[string]string{"AWS_USE_FIPS_ENDPOINT": "true", "AWS_USE_DUALSTACK_ENDPOINT": "true"}, "ec2-fips.us-east-1.api.aws",
		},
		"no such partition": {"moon-base-1", nil, ""},
		"but a URL":         {"moon-base-1", map[string]string{"AWS_ENDPOINT_URL": "https://moon"}, "moon"},
	} {
		t.Run(name, func(t *testing.T) {
			for variable, value := range c.env {
				t.Setenv(variable, value)
			}
			seen := &target{}
			cfg := aws.Default(scope, slog.New(slog.DiscardHandler))
			cfg.Region, cfg.HTTPClient = c.region, &http.Client{Transport: seen}
			cfg.Credentials = keys{}
			p, err := aws.New(t.Context(), cfg)
			if c.want == "" {
				if !errors.Is(err, provider.ErrInvalid) || !strings.Contains(err.Error(), `region "moon-base-1"`) {
					t.Errorf("a region of nowhere: %v", err)
				}
				return
			}
			if err != nil {
				t.Fatal(err)
			}
			if _, err := p.List(t.Context()); err == nil || len(seen.hosts) == 0 || seen.hosts[0] != c.want {
				t.Errorf("called %v, %v; want %s", seen.hosts, err, c.want)
			}
		})
	}
}
