package pkg_test

import (
	"os"
	"os/exec"
	"slices"
	"strings"
	"testing"
)

// libraries lists the packages that may import each third-party module; nil: all. An SDK is
// imported by one package, so that it can be replaced, and faked, in one place.
func libraries() map[string][]string {
	kubernetes := []string{"pkg/api/v1beta1", "pkg/dev/kube", "pkg/dev/nodes"}
	for room := range rooms() {
		if strings.HasPrefix(room, "pkg/operator") {
			kubernetes = append(kubernetes, room)
		}
	}
	return map[string][]string{
		"google.golang.org/grpc":     nil,
		"google.golang.org/protobuf": nil,
		"golang.org/x/sys":           nil,

		// Only the operator and the development stack import Kubernetes: neither server nor agent
		// does.
		"k8s.io/api":                     kubernetes,
		"k8s.io/apimachinery":            kubernetes,
		"k8s.io/apiextensions-apiserver": kubernetes,
		"k8s.io/client-go":               kubernetes,
		"sigs.k8s.io/cluster-api/api":    kubernetes,
		"sigs.k8s.io/controller-runtime": kubernetes,
		"k8s.io/kubectl":                 {"pkg/operator/drain"},
		"k8s.io/klog/v2":                 {"pkg/operator"}, // only to direct its log lines
		"github.com/go-logr/logr":        {"pkg/operator", "pkg/tracing/otlp"},

		// The SDK for AWS is many modules: one package has the common ones, and each service
		// another.
		"github.com/aws/aws-sdk-go-v2": {
			"pkg/admin/profile", "pkg/asg", "pkg/awsclient", "pkg/awsclient/awsclienttest", "pkg/provider/aws", "pkg/secrets/aws",
		},
		"github.com/aws/aws-sdk-go-v2/config":                         {"pkg/admin/profile"}, // TestAdminAlone
		"github.com/aws/aws-sdk-go-v2/credentials":                    {"pkg/admin/profile", "pkg/awsclient"},
		"github.com/aws/aws-sdk-go-v2/feature/ec2/imds":               {"pkg/awsclient"},
		"github.com/aws/aws-sdk-go-v2/service/autoscaling":            {"pkg/asg"},
		"github.com/aws/aws-sdk-go-v2/service/ec2":                    {"pkg/provider/aws"},
		"github.com/aws/aws-sdk-go-v2/service/elasticloadbalancingv2": {"pkg/provider/aws"},
		"github.com/aws/aws-sdk-go-v2/service/secretsmanager":         {"pkg/secrets/aws"},
		"github.com/aws/aws-sdk-go-v2/service/sso":                    {"pkg/admin/profile"},
		"github.com/aws/aws-sdk-go-v2/service/ssm":                    {"pkg/secrets/aws"},
		"github.com/aws/aws-sdk-go-v2/service/sts":                    {"pkg/admin/profile"},
		"github.com/aws/smithy-go":                                    {"pkg/admin/profile", "pkg/awsclient", "pkg/provider/aws"},

		// The operator's metrics are in the registry of controller-runtime.
		"github.com/prometheus/client_golang": {"pkg/metrics/metricstest", "pkg/metrics/prometheus", "pkg/operator/drain"},
		"github.com/prometheus/common":        {"pkg/metrics/metricstest", "pkg/metrics/prometheus"},

		// A program that passes a trace on links no SDK.
		"go.opentelemetry.io/otel":                                        {"pkg/tracing", "pkg/tracing/otlp"},
		"go.opentelemetry.io/otel/trace":                                  {"pkg/tracing", "pkg/tracing/otlp"},
		"go.opentelemetry.io/otel/sdk":                                    {"pkg/tracing/otlp", "pkg/tracing/otlp/otlptest"},
		"go.opentelemetry.io/otel/exporters/otlp/otlptrace":               {"pkg/tracing/otlp"},
		"go.opentelemetry.io/otel/exporters/otlp/otlptrace/otlptracegrpc": {"pkg/tracing/otlp"},
		"go.opentelemetry.io/otel/exporters/otlp/otlptrace/otlptracehttp": {"pkg/tracing/otlp"},
		"go.opentelemetry.io/proto/otlp":                                  {"pkg/tracing/otlp/otlptest"},

		"pgregory.net/rapid": {"pkg/rapidseed"}, // which tests import alone

		"google.golang.org/genproto/googleapis/rpc": {"pkg/rpc"},
		"github.com/docker/docker":                  {"pkg/provider/docker"},
		"github.com/containerd/errdefs":             {"pkg/provider/docker", "integration/containers"},
		"github.com/minio/minio-go/v7":              {"pkg/object/s3", "integration/containers"},
		"github.com/ncruces/go-sqlite3":             {"pkg/server/ledger"},
		"golang.org/x/sync": {
			"pkg/provider/docker", "pkg/server/agents", "pkg/server/ledger", "pkg/server/leader", "pkg/server/groups", "pkg/server/delivery",
			"pkg/server/registry", "pkg/server/roster", "pkg/server/reconcile", "pkg/operator/pool", "pkg/admin/backup",
		},
		"golang.org/x/time":              {"pkg/server/fair", "pkg/server/leader"},
		"github.com/golang-jwt/jwt/v5":   {"pkg/nonce"},
		"github.com/spiffe/go-spiffe/v2": {"pkg/pki"},
		"github.com/tailscale/hujson":    {"pkg/config", "pkg/server/ledger"}, // files that users edit too
		"sigs.k8s.io/yaml": {
			"images/release", "integration/cluster/machine", "pkg/admin/cli", "pkg/dev/stack", "pkg/operator/settings",
		},
		"github.com/shirou/gopsutil/v4": {"pkg/agent", "pkg/dev/stack"}, // properties of machines and processes
		"github.com/spf13/cobra":        {"pkg/admin/cli", "cmd/nstance-server", "cmd/dev", "cmd/dev-aws", "cmd/dev-s3", "images"},

		"github.com/danielgtaylor/huma/v2": {"pkg/admin/httpapi"}, // an API with the document of its types

		"github.com/google/go-containerregistry": {
			"images/base", "images/registry", "images/release", "pkg/provider/docker/registry", "pkg/provider/docker/registry/registrytest",
			"integration/cluster/pack",
		},
		"github.com/docker/cli": {"pkg/provider/docker/registry"}, // reads the file of docker login

		// The product's client of an engine differs from testcontainers'.
		"github.com/moby/moby/api":                                  {"integration/containers"},
		"github.com/moby/moby/client":                               {"integration/containers"},
		"github.com/testcontainers/testcontainers-go":               {"integration/containers"},
		"github.com/testcontainers/testcontainers-go/modules/k3s":   {"integration/containers"},
		"github.com/testcontainers/testcontainers-go/modules/minio": {"integration/containers"},

		"golang.org/x/crypto/x509roots/fallback": {"images/base"},
	}
}

// TestAdminAlone: code that reads a user's files, and signs users in, is linked into nstance-admin
// only.
func TestAdminAlone(t *testing.T) {
	for program, want := range map[string]bool{
		"nstance-admin": true, "nstance-server": false, "nstance-agent": false, "nstance-operator": false, "nstance-asg": false,
	} {
		cmd := exec.Command("go", "list", "-deps", "./cmd/"+program)
		cmd.Dir = ".."
		cmd.Stderr = os.Stderr
		out, err := cmd.Output()
		if err != nil {
			t.Fatalf("go list: %v", err)
		}
		const sdk = "github.com/aws/aws-sdk-go-v2/"
		for _, lib := range []string{sdk + "config", sdk + "service/sso", sdk + "service/ssooidc", sdk + "service/sts"} {
			if linked := slices.Contains(strings.Fields(string(out)), lib); linked != want {
				t.Errorf("%s links %s: %t, want %t", program, lib, linked, want)
			}
		}
	}
}
