package kubenode

import (
	"crypto/tls"
	"crypto/x509"
	"encoding/base64"
	"errors"
	"fmt"
	"net/http"
	"net/url"
	"os"
	"path/filepath"
	"strings"
	"time"

	"sigs.k8s.io/yaml"
)

// kubeconfig is what of such a file is understood here.
type kubeconfig struct {
	CurrentContext string  `json:"current-context"`
	Contexts       []named `json:"contexts"`
	Clusters       []named `json:"clusters"`
	Users          []named `json:"users"`
}

type named struct {
	Name    string      `json:"name"`
	Context kubeContext `json:"context"`
	Cluster kubeCluster `json:"cluster"`
	User    kubeUser    `json:"user"`
}

type kubeContext struct {
	Cluster string `json:"cluster"`
	User    string `json:"user"`
}

type kubeCluster struct {
	Server        string `json:"server"`
	CA            string `json:"certificate-authority"`
	CAData        string `json:"certificate-authority-data"`
	ServerName    string `json:"tls-server-name"`
	SkipTLSVerify bool   `json:"insecure-skip-tls-verify"`
}

type kubeUser struct {
	Certificate     string         `json:"client-certificate"`
	CertificateData string         `json:"client-certificate-data"`
	Key             string         `json:"client-key"`
	KeyData         string         `json:"client-key-data"`
	Token           string         `json:"token"`
	TokenFile       string         `json:"tokenFile"`
	Username        string         `json:"username"`
	Exec            map[string]any `json:"exec"`
	AuthProvider    map[string]any `json:"auth-provider"`
}

// endpoint is an API server and what is shown to it.
type endpoint struct {
	base  string // the server's URL without a slash at its end
	token string
	http  *http.Client
}

// open reads the API server that a kubeconfig's current context names. Files that it
// names are relative to it.
func open(path string, timeout time.Duration) (*endpoint, error) {
	text, err := os.ReadFile(path) //nolint:gosec // the operator of the server names it
	if err != nil {
		return nil, err
	}
	e, err := parse(text, filepath.Dir(path), timeout)
	if err != nil {
		return nil, fmt.Errorf("%s: %w", path, err)
	}
	return e, nil
}

func parse(text []byte, folder string, timeout time.Duration) (*endpoint, error) {
	var k kubeconfig
	if err := yaml.Unmarshal(text, &k); err != nil {
		return nil, err
	}
	c, u, err := k.current()
	if err != nil {
		return nil, err
	}
	at, err := url.Parse(c.Server)
	if err != nil || at.Host == "" || at.Scheme != "https" && at.Scheme != "http" {
		return nil, fmt.Errorf("server: %.200q is not valid: want a URL such as https://127.0.0.1:6443", c.Server)
	}
	config, err := c.tls(folder)
	if err != nil {
		return nil, err
	}
	e := &endpoint{base: strings.TrimSuffix(c.Server, "/")}
	if e.token, err = u.prove(config, folder); err != nil {
		return nil, err
	}
	e.http = &http.Client{Timeout: timeout, Transport: &http.Transport{
		TLSClientConfig: config, Proxy: http.ProxyFromEnvironment, ForceAttemptHTTP2: true, IdleConnTimeout: time.Minute,
	}}
	return e, nil
}

// current finds what the current context names.
func (k kubeconfig) current() (c kubeCluster, u kubeUser, err error) {
	at, err := find("context", k.Contexts, k.CurrentContext)
	if err != nil {
		return c, u, err
	}
	where, err := find("cluster", k.Clusters, at.Context.Cluster)
	if err != nil {
		return c, u, err
	}
	if at.Context.User == "" {
		return where.Cluster, u, nil
	}
	who, err := find("user", k.Users, at.Context.User)
	return where.Cluster, who.User, err
}

func find(what string, list []named, name string) (named, error) {
	for _, n := range list {
		if n.Name == name {
			return n, nil
		}
	}
	return named{}, fmt.Errorf("%ss: there is no %s %.80q", what, what, name)
}

// tls says whom to trust.
func (c kubeCluster) tls(folder string) (*tls.Config, error) {
	config := &tls.Config{
		MinVersion: tls.VersionTLS12, ServerName: c.ServerName,
		InsecureSkipVerify: c.SkipTLSVerify, //nolint:gosec // the file says so
	}
	ca, err := content("certificate-authority", c.CAData, c.CA, folder)
	if err != nil || ca == nil {
		return config, err
	}
	config.RootCAs = x509.NewCertPool()
	if !config.RootCAs.AppendCertsFromPEM(ca) {
		return nil, errors.New("certificate-authority: no certificate is in it")
	}
	return config, nil
}

// prove puts the user's certificate into config, or returns a token.
func (u kubeUser) prove(config *tls.Config, folder string) (token string, err error) {
	if u.Exec != nil || u.AuthProvider != nil || u.Username != "" {
		return "", errors.New("users: want a client certificate or a token: " +
			"exec, auth-provider and username are not supported here")
	}
	certificate, err := content("client-certificate", u.CertificateData, u.Certificate, folder)
	if err != nil {
		return "", err
	}
	key, err := content("client-key", u.KeyData, u.Key, folder)
	if err != nil {
		return "", err
	}
	if certificate != nil || key != nil {
		pair, err := tls.X509KeyPair(certificate, key)
		if err != nil {
			return "", fmt.Errorf("client-certificate: %w", err)
		}
		config.Certificates = []tls.Certificate{pair}
	}
	if u.Token == "" && u.TokenFile != "" {
		text, err := os.ReadFile(relative(u.TokenFile, folder))
		return strings.TrimSpace(string(text)), err
	}
	return u.Token, nil
}

// content is what a field holds itself, in base64, or the file that its sibling names.
func content(field, data, file, folder string) ([]byte, error) {
	switch {
	case data != "":
		text, err := base64.StdEncoding.DecodeString(data)
		if err != nil {
			return nil, fmt.Errorf("%s-data: want base64: %w", field, err)
		}
		return text, nil
	case file != "":
		text, err := os.ReadFile(relative(file, folder))
		if err != nil {
			return nil, fmt.Errorf("%s: %w", field, err)
		}
		return text, nil
	default:
		return nil, nil
	}
}

func relative(file, folder string) string {
	if filepath.IsAbs(file) {
		return file
	}
	return filepath.Join(folder, file)
}
