package s3

import (
	"errors"
	"fmt"
	"net"
	"net/http"
	"net/netip"
	"net/url"
	"strings"
	"time"

	"github.com/minio/minio-go/v7"
	"github.com/minio/minio-go/v7/pkg/encrypt"
	"github.com/minio/minio-go/v7/pkg/s3utils"

	"github.com/nstance/nstance/pkg/awsclient"
	"github.com/nstance/nstance/pkg/env"
)

// DefaultRequestTimeout bounds one request if Config.RequestTimeout is zero.
const DefaultRequestTimeout = 30 * time.Second

// The endpoint of AWS, which the client turns into the region's own, and the region for other
// stores if none is set.
const (
	awsEndpoint   = "s3.amazonaws.com"
	defaultRegion = "us-east-1"
)

// Connection limits, below the request timeout to distinguish a dead address from a slow store.
const (
	dialTimeout  = 5 * time.Second
	idleTimeout  = time.Minute
	idlePerHost  = 64
	tlsHandshake = 5 * time.Second
)

// Config is the bucket, its endpoint and the credentials.
type Config struct {
	Bucket string

	// Endpoint is an http or https URL without a path; empty means AWS. http is only for this
	// machine, unless Insecure allows it for others; the same applies to TokenService.
	Endpoint string
	Insecure bool

	// Region may be empty with an Endpoint; the default is then us-east-1.
	Region string

	// PathStyle puts the bucket in the URL's path. By default the bucket is put in the host name
	// for AWS and Google, and in the path elsewhere.
	PathStyle bool
	// HostStyle puts the bucket in the host name for every endpoint.
	HostStyle bool
	// SingleStack uses AWS hosts with only IPv4 addresses. DualStack uses hosts with both where
	// that is not the default, which is in partitions other than amazonaws.com.
	SingleStack, DualStack bool
	// FIPS uses AWS hosts with cryptography validated by FIPS 140.
	FIPS bool

	// Credentials. If both keys are empty: the shared credentials file, then the credentials for
	// the rest of AWS: web identity, container, or instance role.
	AccessKeyID, SecretAccessKey, SessionToken string
	// Credentials replace all of those unless the keys are set; nil: none.
	Credentials awsclient.CredentialsProvider

	// Metadata is the URL of the service for a machine's role credentials; empty means EC2's.
	// Local is the client for it and for container credentials; nil means a default one.
	Metadata string
	Local    *http.Client

	// TokenService is the URL of the service for web identities; empty means the region's.
	TokenService string

	// Encryption is the store's encryption of objects: AES256, aws:kms, or aws:kms: followed
	// by the key's ID or ARN; empty means the bucket's default.
	Encryption string

	// RequestTimeout bounds each request; 0 means DefaultRequestTimeout.
	RequestTimeout time.Duration

	// Transport replaces the default transport. It must not retry and must not decompress.
	Transport http.RoundTripper
}

// pathStyle is the variable for Config.PathStyle and Config.HostStyle.
const pathStyle = "AWS_S3_USE_PATH_STYLE"

// FromEnv fills a Config from the variables of AWS's own tools: AWS_REGION or
// AWS_DEFAULT_REGION, AWS_ENDPOINT_URL_S3 or AWS_ENDPOINT_URL, AWS_S3_USE_PATH_STYLE (a
// boolean), AWS_ACCESS_KEY_ID, AWS_SECRET_ACCESS_KEY, AWS_SESSION_TOKEN,
// AWS_EC2_METADATA_SERVICE_ENDPOINT, AWS_ENDPOINT_URL_STS, AWS_USE_DUALSTACK_ENDPOINT and
// AWS_USE_FIPS_ENDPOINT (booleans); and from NSTANCE_S3_SSE and NSTANCE_INSECURE_STORAGE (a
// boolean). getenv is os.Getenv outside of tests.
func FromEnv(bucket string, getenv func(string) string) (Config, error) {
	in := env.Reader{Getenv: getenv}
	endpoint, _ := in.First("AWS_ENDPOINT_URL_S3", "AWS_ENDPOINT_URL")
	region, _ := awsclient.Config{Getenv: getenv}.ConfiguredRegion()
	cfg := Config{
		Bucket:          bucket,
		Endpoint:        endpoint,
		Region:          region,
		PathStyle:       in.Bool(pathStyle),
		DualStack:       in.Bool(awsclient.DualStackVariable),
		FIPS:            in.Bool(awsclient.FIPSVariable),
		Insecure:        in.Bool(awsclient.InsecureVariable),
		AccessKeyID:     getenv("AWS_ACCESS_KEY_ID"),
		SecretAccessKey: getenv("AWS_SECRET_ACCESS_KEY"),
		SessionToken:    getenv("AWS_SESSION_TOKEN"),
		Metadata:        getenv("AWS_EC2_METADATA_SERVICE_ENDPOINT"),
		TokenService:    getenv("AWS_ENDPOINT_URL_STS"),
		Encryption:      getenv("NSTANCE_S3_SSE"),
	}
	cfg.HostStyle = in.Get(pathStyle) != "" && !cfg.PathStyle
	cfg.SingleStack = in.Get(awsclient.DualStackVariable) != "" && !cfg.DualStack
	if err := in.Err(); err != nil {
		return Config{}, fmt.Errorf("read S3 settings: %w", err)
	}
	return cfg, nil
}

// Validate returns all problems at once. It sends nothing.
func (c Config) Validate() error {
	var errs []error
	if err := s3utils.CheckValidBucketNameStrict(c.Bucket); err != nil {
		errs = append(errs, fmt.Errorf("bucket %q: %w", c.Bucket, err))
	}
	if c.Endpoint == "" && c.Region == "" {
		errs = append(errs, errors.New("region is empty: AWS needs one (AWS_REGION), or set an endpoint (AWS_ENDPOINT_URL)"))
	}
	u, err := parseEndpoint(c.Endpoint)
	if err != nil {
		errs = append(errs, err)
	} else if _, numeric := netip.ParseAddr(u.Hostname()); c.HostStyle && numeric == nil {
		errs = append(errs, fmt.Errorf("path style is false (AWS_S3_USE_PATH_STYLE), and the endpoint %q is an address: "+
			"virtual-hosted style needs a DNS name", u.Host))
	}
	if !c.Insecure {
		errs = append(errs, awsclient.CheckPlain("endpoint (AWS_ENDPOINT_URL_S3, AWS_ENDPOINT_URL)", c.Endpoint),
			awsclient.CheckPlain("token service (AWS_ENDPOINT_URL_STS)", c.TokenService))
	}
	if err := c.checkRegion(); err != nil {
		errs = append(errs, err)
	}
	if (c.AccessKeyID == "") != (c.SecretAccessKey == "") {
		errs = append(errs, errors.New("only one of access key id (AWS_ACCESS_KEY_ID) and secret access key (AWS_SECRET_ACCESS_KEY) "+
			"is set: set both or none"))
	}
	if _, err := c.encryption(); err != nil {
		errs = append(errs, err)
	}
	if c.RequestTimeout < 0 {
		errs = append(errs, fmt.Errorf("request timeout is %v, want 0 or more", c.RequestTimeout))
	}
	return errors.Join(errs...)
}

// checkRegion returns an error if AWS has no S3 hosts in the region.
func (c Config) checkRegion() error {
	if c.Endpoint != "" || c.Region == "" {
		return nil
	}
	switch p, ok := awsclient.PartitionOf(c.Region); {
	case !ok:
		return fmt.Errorf("region %.80q (AWS_REGION) is not in a known partition of AWS: "+
			"want one such as eu-central-1, or set its endpoint (AWS_ENDPOINT_URL_S3)", c.Region)
	case c.FIPS && p.ID == "aws-cn":
		return fmt.Errorf("FIPS is on (AWS_USE_FIPS_ENDPOINT), but S3 has no FIPS hosts in the region %q: want false there", c.Region)
	}
	return nil
}

// parseEndpoint parses Config.Endpoint strictly.
func parseEndpoint(endpoint string) (*url.URL, error) {
	if endpoint == "" {
		return &url.URL{Scheme: "https", Host: awsEndpoint}, nil
	}
	u, err := url.Parse(endpoint)
	if err != nil {
		// The parser's error quotes the whole input, which may have a password.
		return nil, errors.New("endpoint is not a URL: want one such as https://s3.example.com:9000")
	}
	bare := (u.Path == "" || u.Path == "/") && u.RawQuery == "" && u.Fragment == "" && u.User == nil && u.Opaque == ""
	if u.Scheme != "http" && u.Scheme != "https" || u.Hostname() == "" || !bare {
		return nil, fmt.Errorf("endpoint %q: want one such as https://s3.example.com:9000, without path, query or user", u.Redacted())
	}
	return u, nil
}

func (c Config) options() (string, *minio.Options, error) {
	u, err := parseEndpoint(c.Endpoint)
	if err != nil {
		return "", nil, err
	}
	o := &minio.Options{
		Secure:    u.Scheme == "https",
		Region:    c.Region,
		Transport: c.Transport,
		// A retry would hide which of two writes landed. Reads are retried in this package.
		MaxRetries: 1,
	}
	if o.Region == "" {
		o.Region = defaultRegion // an empty one costs a request, and makes the client retry on its own
	}
	if o.Transport == nil {
		o.Transport = newTransport()
	}
	host := u.Host
	if c.Endpoint == "" {
		host = c.awsHost()
		o.Transport = only{host, o.Transport}
	}
	o.Transport = guard{o.Transport}
	switch {
	case c.PathStyle:
		o.BucketLookup = minio.BucketLookupPath
	case c.HostStyle, c.Endpoint == "" && !strings.Contains(c.Bucket, "."): // a certificate's wildcard covers one label
		o.BucketLookup = minio.BucketLookupDNS
	}
	return host, o, nil
}

// awsHost returns the region's S3 host. In amazonaws.com partitions, dual-stack hosts are the
// default.
func (c Config) awsHost() string {
	p, _ := awsclient.PartitionOf(c.Region)
	name := "s3."
	if c.FIPS {
		name = "s3-fips."
	}
	if c.DualStack || !c.SingleStack && strings.HasPrefix(p.Suffix, "amazonaws.com") {
		name += "dualstack."
	}
	return name + c.Region + "." + p.Suffix
}

// pin makes the client call host: its built-in list of regions is incomplete, and it sends
// requests for unknown regions to us-east-1.
func (c Config) pin(client *minio.Client, host string) {
	client.SetS3EnableDualstack(!c.SingleStack)
	if c.Endpoint == "" && !strings.Contains(c.Bucket, ".") {
		client.SetS3TransferAccelerate(host) // this overrides the list, whatever the host is
	}
}

// only refuses requests to hosts other than host and its subdomains.
type only struct {
	host string
	next http.RoundTripper
}

func (o only) RoundTrip(r *http.Request) (*http.Response, error) {
	if at := r.URL.Hostname(); at != o.host && !strings.HasSuffix(at, "."+o.host) {
		return nil, fmt.Errorf("the S3 client does not know the region of %s, and would call %s: set its endpoint (AWS_ENDPOINT_URL_S3)",
			o.host, at)
	}
	return o.next.RoundTrip(r)
}

// encryption returns the encryption that writes request; nil: none.
func (c Config) encryption() (encrypt.ServerSide, error) {
	key, ownKey := strings.CutPrefix(c.Encryption, "aws:kms:")
	switch {
	case c.Encryption == "":
		return nil, nil
	case c.Encryption == "AES256":
		return encrypt.NewSSE(), nil
	case c.Encryption == "aws:kms":
		return encrypt.NewSSEKMS("", nil) // the account's own key
	case ownKey && key != "":
		return encrypt.NewSSEKMS(key, nil)
	default:
		return nil, fmt.Errorf("encryption (NSTANCE_S3_SSE) is %.200q: want AES256, aws:kms, or aws:kms: and the key's id or ARN", c.Encryption)
	}
}

func newTransport() *http.Transport {
	return &http.Transport{
		Proxy:               http.ProxyFromEnvironment,
		DialContext:         (&net.Dialer{Timeout: dialTimeout}).DialContext,
		TLSHandshakeTimeout: tlsHandshake,
		MaxIdleConnsPerHost: idlePerHost,
		IdleConnTimeout:     idleTimeout,
		ForceAttemptHTTP2:   true,
		DisableCompression:  true, // a body must arrive as it was stored
	}
}
