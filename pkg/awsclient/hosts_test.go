package awsclient_test

import (
	"strings"
	"testing"

	"github.com/nstance/nstance/pkg/awsclient"
)

// kinds are the four variants of a region's hosts, in the order of the table below.
func kinds(region string) []awsclient.Hosts {
	return []awsclient.Hosts{
		{Region: region}, {Region: region, DualStack: true}, {Region: region, FIPS: true}, {Region: region, DualStack: true, FIPS: true},
	}
}

// TestHosts: the services' hosts in a region of each partition, as in the services' rule sets: the
// usual ones, dual-stack, FIPS, and FIPS dual-stack.
func TestHosts(t *testing.T) {
	for region, want := range map[string][4]string{ // of EC2; all services but two differ from it in their names only
		"eu-central-1": {
			"ec2.eu-central-1.amazonaws.com", "ec2.eu-central-1.api.aws", "ec2-fips.eu-central-1.amazonaws.com", "ec2-fips.eu-central-1.api.aws",
		},
		"us-newplace-1": {
			"ec2.us-newplace-1.amazonaws.com", "ec2.us-newplace-1.api.aws", "ec2-fips.us-newplace-1.amazonaws.com", "ec2-fips.us-newplace-1.api.aws",
		},
		"us-gov-west-1": {
			"ec2.us-gov-west-1.amazonaws.com", "ec2.us-gov-west-1.api.aws", "ec2.us-gov-west-1.amazonaws.com", "ec2-fips.us-gov-west-1.api.aws",
		},
		"cn-north-1": {
			"ec2.cn-north-1.amazonaws.com.cn", "ec2.cn-north-1.api.amazonwebservices.com.cn", "ec2-fips.cn-north-1.amazonaws.com.cn",
			"ec2-fips.cn-north-1.api.amazonwebservices.com.cn",
		},
		"eusc-de-east-1": {
			"ec2.eusc-de-east-1.amazonaws.eu", "ec2.eusc-de-east-1.api.amazonwebservices.eu", "ec2-fips.eusc-de-east-1.amazonaws.eu",
			"ec2-fips.eusc-de-east-1.api.amazonwebservices.eu",
		},
		"us-iso-east-1": {
			"ec2.us-iso-east-1.c2s.ic.gov", "ec2.us-iso-east-1.api.aws.ic.gov", "ec2-fips.us-iso-east-1.c2s.ic.gov",
			"ec2-fips.us-iso-east-1.api.aws.ic.gov",
		},
		"us-isob-east-1": {
			"ec2.us-isob-east-1.sc2s.sgov.gov", "ec2.us-isob-east-1.api.aws.scloud", "ec2-fips.us-isob-east-1.sc2s.sgov.gov",
			"ec2-fips.us-isob-east-1.api.aws.scloud",
		},
		"eu-isoe-west-1": {
			"ec2.eu-isoe-west-1.cloud.adc-e.uk", "ec2.eu-isoe-west-1.api.cloud-aws.adc-e.uk", "ec2-fips.eu-isoe-west-1.cloud.adc-e.uk",
			"ec2-fips.eu-isoe-west-1.api.cloud-aws.adc-e.uk",
		},
		"us-isof-south-1": {
			"ec2.us-isof-south-1.csp.hci.ic.gov", "ec2.us-isof-south-1.api.aws.hci.ic.gov", "ec2-fips.us-isof-south-1.csp.hci.ic.gov",
			"ec2-fips.us-isof-south-1.api.aws.hci.ic.gov",
		},
	} {
		for service, name := range map[awsclient.Service]string{
			awsclient.EC2: "ec2", awsclient.LoadBalancing: "elasticloadbalancing", awsclient.AutoScaling: "autoscaling",
			awsclient.ParameterStore: "ssm", awsclient.TokenService: "sts",
		} {
			for n, hosts := range kinds(region) {
				host := name + strings.TrimPrefix(want[n], "ec2")
				if got, err := hosts.URL(service); err != nil || got != "https://"+host {
					t.Errorf("%s, %+v: %s, %v; want %s", service, hosts, got, err, host)
				}
			}
		}
	}
}

// TestHostsOfSecrets: Secrets Manager has no other dual-stack name in the older partitions, and one
// FIPS host in GovCloud.
func TestHostsOfSecrets(t *testing.T) {
	const s = "https://secretsmanager"
	for region, want := range map[string][4]string{
		"eu-central-1": {
			s + ".eu-central-1.amazonaws.com", s + ".eu-central-1.amazonaws.com", s + "-fips.eu-central-1.amazonaws.com",
			s + "-fips.eu-central-1.amazonaws.com",
		},
		"us-gov-west-1": {
			s + ".us-gov-west-1.amazonaws.com", s + ".us-gov-west-1.amazonaws.com", s + "-fips.us-gov-west-1.amazonaws.com",
			s + "-fips.us-gov-west-1.amazonaws.com",
		},
		"eusc-de-east-1": {
			s + ".eusc-de-east-1.amazonaws.eu", s + ".eusc-de-east-1.api.amazonwebservices.eu", s + "-fips.eusc-de-east-1.amazonaws.eu",
			s + "-fips.eusc-de-east-1.api.amazonwebservices.eu",
		},
	} {
		for n, hosts := range kinds(region) {
			if got, err := hosts.URL(awsclient.SecretsManager); err != nil || got != want[n] {
				t.Errorf("%+v: %s, %v; want %s", hosts, got, err, want[n])
			}
		}
	}
}

// TestUnknownRegion: a region of an unknown partition is refused with the name of its source,
// unless a URL is set, with which it does not matter.
func TestUnknownRegion(t *testing.T) {
	noKeys(t)
	t.Setenv("AWS_REGION", "")
	for name, c := range map[string]struct {
		cfg  awsclient.Config
		env  map[string]string
		want string // in the error, or the URL
	}{
		"given":         {awsclient.Config{Region: "moon-base-1"}, nil, `region "moon-base-1"`},
		"a variable":    {awsclient.Config{}, map[string]string{"AWS_REGION": "eu-central-1.evil"}, `AWS_REGION "eu-central-1.evil"`},
		"the other one": {awsclient.Config{}, map[string]string{"AWS_DEFAULT_REGION": "EU-CENTRAL-1"}, `AWS_DEFAULT_REGION "EU-CENTRAL-1"`},
		"own URL": {
			awsclient.Config{Region: "moon-base-1"}, map[string]string{"AWS_ENDPOINT_URL_EC2": "https://moon/"}, "https://moon",
		},
		"a URL of all":  {awsclient.Config{Region: "r"}, map[string]string{"AWS_ENDPOINT_URL": "https://moon"}, "https://moon"},
		"another's URL": {awsclient.Config{Region: "r"}, map[string]string{"AWS_ENDPOINT_URL_SSM": "http://moon"}, `region "r"`},
	} {
		c.cfg.Getenv = func(name string) string { return c.env[name] }
		s, err := c.cfg.Open(t.Context())
		if err != nil {
			t.Fatalf("%s: %v", name, err)
		}
		url, err := s.URL(awsclient.EC2)
		if refused := !strings.HasPrefix(c.want, "http"); !refused && (err != nil || url != c.want) {
			t.Errorf("%s: %s, %v; want %s", name, url, err, c.want)
		} else if refused && (err == nil || !strings.Contains(err.Error(), c.want) || !strings.Contains(err.Error(), "AWS_ENDPOINT_URL_EC2")) {
			t.Errorf("%s: %s, %v; want an error that says %s, and what to set", name, url, err, c.want)
		}
	}
}

// TestKindsOfHosts: the variables of AWS's own tools select the hosts.
func TestKindsOfHosts(t *testing.T) {
	noKeys(t)
	for _, variable := range []string{"AWS_USE_DUALSTACK_ENDPOINT", "AWS_USE_FIPS_ENDPOINT"} {
		for value, want := range map[string]bool{"": false, "true": true, "false": false} {
			cfg := awsclient.Config{Region: "us-east-1", Getenv: func(name string) string { return map[string]string{variable: value}[name] }}
			s, err := cfg.Open(t.Context())
			fips := variable == "AWS_USE_FIPS_ENDPOINT"
			if err != nil || s.DualStack != (want && !fips) || s.FIPS != (want && fips) {
				t.Errorf("%s is %q: %+v, %v", variable, value, s.Hosts, err)
			}
		}
		t.Run(variable, func(t *testing.T) {
			t.Setenv(variable, "maybe")
			_, err := awsclient.Config{Region: "us-east-1"}.Open(t.Context())
			if want := variable + `: "maybe" is not valid: want true or false`; err == nil || err.Error() != want {
				t.Errorf("maybe: %v, want %s", err, want)
			}
		})
	}
}

// TestPlainURLs: no service is called over plain HTTP at another machine, unless the environment
// allows it.
func TestPlainURLs(t *testing.T) {
	noKeys(t)
	for name, c := range map[string]struct {
		env  map[string]string
		want string // in the error; empty: none
	}{
		"of all":   {map[string]string{"AWS_ENDPOINT_URL": "http://moon"}, `AWS_ENDPOINT_URL is "http://moon"`},
		"password": {map[string]string{"AWS_ENDPOINT_URL": "http://u:hunter2@moon"}, `"http://u:xxxxx@moon"`},
		"here":     {map[string]string{"AWS_ENDPOINT_URL": "http://127.0.0.1:1"}, ""},
		"TLS":      {map[string]string{"AWS_ENDPOINT_URL": "https://moon"}, ""},
		"allowed":  {map[string]string{"AWS_ENDPOINT_URL": "http://moon", "NSTANCE_INSECURE_STORAGE": "true"}, ""},
		"perhaps":  {map[string]string{"AWS_ENDPOINT_URL": "http://moon", "NSTANCE_INSECURE_STORAGE": "perhaps"}, "want true or false"},
	} {
		getenv := func(name string) string { return c.env[name] }
		s, err := awsclient.Config{Region: "eu-central-1", Getenv: getenv}.Open(t.Context())
		if err != nil {
			t.Fatalf("%s: %v", name, err)
		}
		for _, of := range []awsclient.Service{
			awsclient.EC2, awsclient.LoadBalancing, awsclient.AutoScaling, awsclient.ParameterStore, awsclient.SecretsManager,
		} {
			if _, err := s.URL(of); (err == nil) != (c.want == "") || err != nil && !strings.Contains(err.Error(), c.want) {
				t.Errorf("%s, %s: %v, want %q", name, of, err, c.want)
			}
		}
		s.Getenv = awsclient.WithInsecure(getenv)
		if _, err := s.URL(awsclient.ParameterStore); err != nil {
			t.Errorf("%s, allowed by a flag: %v", name, err)
		}
	}
	s := awsclient.Session{Getenv: func(name string) string { return map[string]string{"AWS_ENDPOINT_URL_EC2": "http://moon"}[name] }}
	if _, err := s.URL(awsclient.EC2); err == nil || !strings.Contains(err.Error(), `AWS_ENDPOINT_URL_EC2 is "http://moon"`) {
		t.Errorf("one service: %v", err)
	}
}
