//go:build integration

package cluster

import (
	"bytes"
	"context"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/base64"
	"encoding/pem"
	"errors"
	"io"
	"math/big"
	"os"
	"path/filepath"
	"regexp"
	"time"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/util/yaml"
	kyaml "sigs.k8s.io/yaml"
)

// installCore installs Cluster API's core from its manifests, without cert-manager: the certificate
// of its webhooks is created here.
func (f *fixture) installCore() {
	f.Helper()
	image := f.StandIn("capi")
	f.Must(f.cluster.Load(f.Context(), image))
	text, err := os.ReadFile(filepath.Join(f.StandInFolder("capi"), "install.yaml"))
	f.Must(err)
	certificate, key := serving(f, "capi-webhook-service.capi-system.svc")
	b64 := base64.StdEncoding.EncodeToString
	var out bytes.Buffer
	for _, o := range objects(f, defaults.ReplaceAll(text, []byte("$1"))) {
		switch o.GetKind() {
		case "Certificate", "Issuer":
			continue
		case "Deployment":
			manager := nested(o.Object, "spec", "template", "spec")["containers"].([]any)[0].(map[string]any)
			manager["image"], manager["imagePullPolicy"] = image, "Never"
		}
		trust(o.Object, b64(certificate))
		document, err := kyaml.Marshal(o.Object)
		f.Must(err)
		out.WriteString("---\n")
		out.Write(document)
	}
	out.WriteString("---\napiVersion: v1\nkind: Secret\nmetadata: {name: capi-webhook-service-cert, namespace: capi-system}\n" +
		"type: kubernetes.io/tls\ndata: {tls.crt: " + b64(certificate) + ", tls.key: " + b64(key) + "}\n")
	f.write("core.yaml", out.Bytes())
	f.run("kubectl apply --server-side -f core.yaml")
	f.Eventually(3*time.Minute, "Cluster API's core is available", func(ctx context.Context) error {
		_, err := f.try(ctx, "kubectl -n capi-system rollout status deployment capi-controller-manager --timeout 2m")
		return err
	})
}

// defaults are the variables that clusterctl substitutes: ${NAME:=default}.
var defaults = regexp.MustCompile(`\$\{[A-Z_0-9]+:=([^}]*)\}`)

func objects(f *fixture, text []byte) (all []unstructured.Unstructured) {
	f.Helper()
	documents := yaml.NewYAMLOrJSONDecoder(bytes.NewReader(text), 4096)
	for {
		var o unstructured.Unstructured
		err := documents.Decode(&o.Object)
		if errors.Is(err, io.EOF) {
			return all
		}
		f.Must(err)
		all = append(all, o)
	}
}

func nested(o map[string]any, fields ...string) map[string]any {
	found, _, _ := unstructured.NestedFieldNoCopy(o, fields...)
	m, _ := found.(map[string]any)
	return m
}

// trust makes the API server trust a certificate for the webhooks of an object.
func trust(o map[string]any, certificate string) {
	if hook := nested(o, "spec", "conversion", "webhook", "clientConfig"); hook != nil {
		hook["caBundle"] = certificate
	}
	hooks, _ := o["webhooks"].([]any)
	for _, hook := range hooks {
		nested(hook.(map[string]any), "clientConfig")["caBundle"] = certificate
	}
}

// serving creates a self-signed certificate.
func serving(f *fixture, name string) (certificate, key []byte) {
	f.Helper()
	private, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	f.Must(err)
	template := &x509.Certificate{
		SerialNumber: big.NewInt(1), Subject: pkix.Name{CommonName: name}, DNSNames: []string{name},
		NotBefore: time.Now().Add(-time.Minute), NotAfter: time.Now().Add(24 * time.Hour),
		KeyUsage: x509.KeyUsageDigitalSignature | x509.KeyUsageCertSign, ExtKeyUsage: []x509.ExtKeyUsage{x509.ExtKeyUsageServerAuth},
		IsCA: true, BasicConstraintsValid: true,
	}
	der, err := x509.CreateCertificate(rand.Reader, template, template, private.Public(), private)
	f.Must(err)
	secret, err := x509.MarshalECPrivateKey(private)
	f.Must(err)
	certificate = pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: der})
	return certificate, pem.EncodeToMemory(&pem.Block{Type: "EC PRIVATE KEY", Bytes: secret})
}
