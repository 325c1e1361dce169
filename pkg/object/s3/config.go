package s3

import (
	"errors"
	"fmt"
	"net"
	"net/http"
	"net/netip"
	"net/url"
	"strconv"
	"strings"
	"time"

	"github.com/minio/minio-go/v7"
	"github.com/minio/minio-go/v7/pkg/encrypt"
	"github.com/minio/minio-go/v7/pkg/s3utils"

	"github.com/nstance/nstance/pkg/awsclient"
)

// DefaultRequestTimeout bounds one request when Config says nothing.
const DefaultRequestTimeout = 30 * time.Second

// The endpoint of AWS, which the client turns into the region's own, and the
// region that stores other than AWS are told when they have none.
const (
	awsEndpoint   = "s3.amazonaws.com"
	defaultRegion = "us-east-1"
)

// Limits of the connection, below the request timeout so that a dead address is
// told from a slow store.
const (
	dialTimeout  = 5 * time.Second
	idleTimeout  = time.Minute
	idlePerHost  = 64
	tlsHandshake = 5 * time.Second
)

// Config says which bucket, where, and as whom.
type Config struct {
	Bucket string

	// Endpoint is an http or https URL without a path; empty means AWS.
	Endpoint string

	// Region may be empty with an Endpoint of one's own, then us-east-1.
	Region string

	// PathStyle puts the bucket in the URL's path. Without it the bucket is put in
	// the host name where the endpoint is AWS or Google, and in the path elsewhere.
	PathStyle bool
	// HostStyle puts the bucket in the host name wherever the endpoint is.
	HostStyle bool
	// SingleStack has AWS be called by hosts that have addresses of IPv4 alone. DualStack
	// asks for those that have both, where that is not the default: in the partitions
	// other than those of amazonaws.com.
	SingleStack, DualStack bool
	// FIPS has AWS be called by hosts whose cryptography is validated by FIPS 140.
	FIPS bool

	// Credentials. Both keys empty means the shared credentials file, then what the rest
	// of AWS is called with: container, or instance role; or, before the latter, a web
	// identity.
	AccessKeyID, SecretAccessKey, SessionToken string
	// Credentials take the place of all that unless the keys are given; nil: nothing does.
	Credentials awsclient.CredentialsProvider

	// Metadata is the URL of the service that gives a machine its role's credentials;
	// empty means that of EC2. Local asks it, and what has the credentials of a container;
	// nil means one of its own.
	Metadata string
	Local    *http.Client

	// TokenService is the URL of the service that takes web identities; empty means that
	// of the region.
	TokenService string

	// Encryption is what objects are to be encrypted with at the store: AES256,
	// aws:kms, or aws:kms: with the key's id or ARN after it; empty means as the
	// bucket's own setting says.
	Encryption string

	// RequestTimeout bounds each request; 0 means DefaultRequestTimeout.
	RequestTimeout time.Duration

	// Transport is used instead of one of the store's own. It must not retry and
	// must not decompress.
	Transport http.RoundTripper
}

// FromEnv fills a Config from the variables that AWS's own tools read: AWS_REGION
// or AWS_DEFAULT_REGION, AWS_ENDPOINT_URL_S3 or AWS_ENDPOINT_URL,
// AWS_S3_USE_PATH_STYLE (a boolean), AWS_ACCESS_KEY_ID, AWS_SECRET_ACCESS_KEY,
// AWS_SESSION_TOKEN, AWS_EC2_METADATA_SERVICE_ENDPOINT, AWS_ENDPOINT_URL_STS,
// AWS_USE_DUALSTACK_ENDPOINT and AWS_USE_FIPS_ENDPOINT (booleans); and NSTANCE_S3_SSE, for
// which those have none. getenv is os.Getenv outside of tests.
func FromEnv(bucket string, getenv func(string) string) (Config, error) {
	first := func(names ...string) string {
		for _, name := range names {
			if v := getenv(name); v != "" {
				return v
			}
		}
		return ""
	}
	cfg := Config{
		Bucket:          bucket,
		Endpoint:        first("AWS_ENDPOINT_URL_S3", "AWS_ENDPOINT_URL"),
		Region:          first("AWS_REGION", "AWS_DEFAULT_REGION"),
		AccessKeyID:     getenv("AWS_ACCESS_KEY_ID"),
		SecretAccessKey: getenv("AWS_SECRET_ACCESS_KEY"),
		SessionToken:    getenv("AWS_SESSION_TOKEN"),
		Metadata:        getenv("AWS_EC2_METADATA_SERVICE_ENDPOINT"),
		TokenService:    getenv("AWS_ENDPOINT_URL_STS"),
		Encryption:      getenv("NSTANCE_S3_SSE"),
	}
	if v := getenv("AWS_S3_USE_PATH_STYLE"); v != "" {
		var err error
		if cfg.PathStyle, err = strconv.ParseBool(v); err != nil {
			return Config{}, fmt.Errorf("read S3 settings: AWS_S3_USE_PATH_STYLE is %q, must be true or false", v)
		}
		cfg.HostStyle = !cfg.PathStyle
	}
	dual, set, err := awsclient.DualStack(getenv)
	if err != nil {
		return Config{}, fmt.Errorf("read S3 settings: %w", err)
	}
	cfg.DualStack, cfg.SingleStack = dual, set && !dual
	if cfg.FIPS, err = awsclient.FIPS(getenv); err != nil {
		return Config{}, fmt.Errorf("read S3 settings: %w", err)
	}
	return cfg, nil
}

// Validate reports every problem at once. It changes nothing and sends nothing.
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
			"a bucket can be put before a name only", u.Host))
	}
	if err := c.checkRegion(); err != nil {
		errs = append(errs, err)
	}
	if (c.AccessKeyID == "") != (c.SecretAccessKey == "") {
		errs = append(errs, errors.New("of access key id (AWS_ACCESS_KEY_ID) and secret access key (AWS_SECRET_ACCESS_KEY) "+
			"one is empty: give both or none"))
	}
	if _, err := c.encryption(); err != nil {
		errs = append(errs, err)
	}
	if c.RequestTimeout < 0 {
		errs = append(errs, fmt.Errorf("request timeout is %v, must not be negative", c.RequestTimeout))
	}
	return errors.Join(errs...)
}

// checkRegion reports why AWS has no hosts of S3 in the region, if they are to be called.
func (c Config) checkRegion() error {
	if c.Endpoint != "" || c.Region == "" {
		return nil
	}
	switch p, ok := awsclient.PartitionOf(c.Region); {
	case !ok:
		return fmt.Errorf("region %.80q (AWS_REGION) is none of a partition of AWS that is known: "+
			"want one such as eu-central-1, or set its endpoint (AWS_ENDPOINT_URL_S3)", c.Region)
	case c.FIPS && p.ID == "aws-cn":
		return fmt.Errorf("FIPS is asked for (AWS_USE_FIPS_ENDPOINT), and S3 has no such hosts in the region %q: want false there", c.Region)
	}
	return nil
}

// parseEndpoint accepts what Config.Endpoint says, and nothing else.
func parseEndpoint(endpoint string) (*url.URL, error) {
	if endpoint == "" {
		return &url.URL{Scheme: "https", Host: awsEndpoint}, nil
	}
	u, err := url.Parse(endpoint)
	if err != nil {
		// The parser's error quotes all it was given, which may hold a password.
		return nil, errors.New("endpoint is not a URL, must be like https://s3.example.com:9000")
	}
	bare := (u.Path == "" || u.Path == "/") && u.RawQuery == "" && u.Fragment == "" && u.User == nil && u.Opaque == ""
	if u.Scheme != "http" && u.Scheme != "https" || u.Hostname() == "" || !bare {
		return nil, fmt.Errorf("endpoint %q: must be like https://s3.example.com:9000, without path, query or user", u.Redacted())
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
		// A retry would hide which of two writes landed. Reads are tried again in
		// this package.
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
	case c.HostStyle, c.Endpoint == "" && !strings.Contains(c.Bucket, "."): // a certificate's star is one label
		o.BucketLookup = minio.BucketLookupDNS
	}
	return host, o, nil
}

// awsHost is where the region's S3 is. Where its suffix is amazonaws.com it has had the hosts
// with addresses of IPv6 for long, and they are the default.
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

// pin has the client call host: it has a list of regions of its own, and sends requests for one
// that is not on it to us-east-1.
func (c Config) pin(client *minio.Client, host string) {
	client.SetS3EnableDualstack(!c.SingleStack)
	if c.Endpoint == "" && !strings.Contains(c.Bucket, ".") {
		client.SetS3TransferAccelerate(host) // it takes the place of the list, whatever the host is
	}
}

// only refuses requests to another host than one, or a name below it.
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

// encryption returns what a write asks for; nil: nothing.
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
		DisableCompression:  true, // a body must come as it was stored
	}
}
