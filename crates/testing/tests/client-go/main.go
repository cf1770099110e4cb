// A program with client-go, as operators are written: it talks to a server and says what is wrong with it.
//
// It is given a kubeconfig and uses the namespace "client-go", which it makes. The first thing that is not as it should be
// ends it with a message and code 1; at the end it prints "ok".
package main

import (
	"context"
	"fmt"
	"os"
	"sync/atomic"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/watch"
	applyapps "k8s.io/client-go/applyconfigurations/apps/v1"
	applycore "k8s.io/client-go/applyconfigurations/core/v1"
	applymeta "k8s.io/client-go/applyconfigurations/meta/v1"
	"k8s.io/client-go/discovery/cached/memory"
	"k8s.io/client-go/dynamic"
	"k8s.io/client-go/informers"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/metadata"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/restmapper"
	"k8s.io/client-go/tools/cache"
	"k8s.io/client-go/tools/clientcmd"
	"k8s.io/client-go/tools/leaderelection"
	"k8s.io/client-go/tools/leaderelection/resourcelock"
	"k8s.io/client-go/tools/pager"
)

const namespace = "client-go"

// patience is how long anything may take before it counts as never happening.
const patience = 30 * time.Second

type program struct {
	ctx    context.Context
	config *rest.Config
	typed  *kubernetes.Clientset
}

func main() {
	config, err := clientcmd.BuildConfigFromFlags("", os.Args[1])
	must(err, "the kubeconfig")
	config.QPS = -1
	config.ContentType = "application/vnd.kubernetes.protobuf"
	config.AcceptContentTypes = "application/vnd.kubernetes.protobuf"
	ctx, cancel := context.WithTimeout(context.Background(), 5*time.Minute)
	defer cancel()
	p := program{ctx, config, kubernetes.NewForConfigOrDie(config)}
	_, err = p.typed.CoreV1().Namespaces().Create(ctx, &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: namespace}}, metav1.CreateOptions{})
	must(err, "creating the namespace")
	// Where no controllers run, nobody else makes it.
	account := &corev1.ServiceAccount{ObjectMeta: metav1.ObjectMeta{Name: "default"}}
	_, err = p.typed.CoreV1().ServiceAccounts(namespace).Create(ctx, account, metav1.CreateOptions{})
	check(err == nil || apierrors.IsAlreadyExists(err), "creating the service account: %v", err)
	for _, step := range []struct {
		name string
		run  func()
	}{
		{"objects in protobuf", p.objects},
		{"errors", p.errors},
		{"discovery", p.discovery},
		{"dynamic client", p.dynamic},
		{"metadata client", p.metadata},
		{"server-side apply", p.apply},
		{"pages", p.pages},
		{"watch list", p.watchList},
		{"informers", p.informers},
		{"leader election", p.leaderElection},
	} {
		fmt.Println(step.name)
		step.run()
	}
	fmt.Println("ok")
}

func (p program) objects() {
	deployments := p.typed.AppsV1().Deployments(namespace)
	replicas, labels := int32(3), map[string]string{"app": "d"}
	made, err := deployments.Create(p.ctx, &appsv1.Deployment{
		ObjectMeta: metav1.ObjectMeta{Name: "d"},
		Spec: appsv1.DeploymentSpec{
			Replicas: &replicas,
			Selector: &metav1.LabelSelector{MatchLabels: labels},
			Template: corev1.PodTemplateSpec{
				ObjectMeta: metav1.ObjectMeta{Labels: labels},
				Spec:       corev1.PodSpec{Containers: []corev1.Container{{Name: "c", Image: "registry.example/app:1"}}},
			},
		},
	}, metav1.CreateOptions{})
	must(err, "creating a deployment")
	check(made.UID != "" && made.Spec.RevisionHistoryLimit != nil, "the server fills in what was left out: %v", made)
	found, err := deployments.Get(p.ctx, "d", metav1.GetOptions{})
	must(err, "getting a deployment")
	check(found.ResourceVersion == made.ResourceVersion && found.Spec.Template.Spec.Containers[0].Image == "registry.example/app:1", "got %v", found)
	found.Status.ObservedGeneration = found.Generation
	found.Status.Replicas = 3
	updated, err := deployments.UpdateStatus(p.ctx, found, metav1.UpdateOptions{})
	must(err, "updating the status")
	check(updated.Status.Replicas == 3, "the status is %v", updated.Status)
	scale, err := deployments.GetScale(p.ctx, "d", metav1.GetOptions{})
	must(err, "getting the scale")
	scale.Spec.Replicas = 7
	scale, err = deployments.UpdateScale(p.ctx, "d", scale, metav1.UpdateOptions{})
	must(err, "updating the scale")
	check(scale.Spec.Replicas == 7, "the scale is %v", scale)
	patched, err := deployments.Patch(p.ctx, "d", types.StrategicMergePatchType, []byte(`{"metadata":{"labels":{"a":"b"}}}`), metav1.PatchOptions{})
	must(err, "patching")
	check(patched.Labels["a"] == "b" && *patched.Spec.Replicas == 7, "patched to %v", patched)
	background := metav1.DeletePropagationBackground
	must(deployments.Delete(p.ctx, "d", metav1.DeleteOptions{PropagationPolicy: &background, Preconditions: metav1.NewUIDPreconditions(string(made.UID))}), "deleting")
}

func (p program) errors() {
	pods := p.typed.CoreV1().Pods(namespace)
	_, err := pods.Get(p.ctx, "none", metav1.GetOptions{})
	check(apierrors.IsNotFound(err), "a missing pod: %v", err)
	_, err = pods.Create(p.ctx, &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Name: "Bad_Name"}}, metav1.CreateOptions{})
	check(apierrors.IsInvalid(err), "an invalid pod: %v", err)
	status, ok := err.(apierrors.APIStatus)
	check(ok && len(status.Status().Details.Causes) >= 2, "all that is wrong is told: %v", err)
	configs := p.typed.CoreV1().ConfigMaps(namespace)
	made, err := configs.Create(p.ctx, &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{GenerateName: "c-"}}, metav1.CreateOptions{})
	must(err, "creating with a generated name")
	stale := made.DeepCopy()
	made.Data = map[string]string{"a": "1"}
	_, err = configs.Update(p.ctx, made, metav1.UpdateOptions{})
	must(err, "updating")
	stale.Data = map[string]string{"a": "2"}
	_, err = configs.Update(p.ctx, stale, metav1.UpdateOptions{})
	check(apierrors.IsConflict(err), "an update of an old version: %v", err)
	must(configs.DeleteCollection(p.ctx, metav1.DeleteOptions{}, metav1.ListOptions{}), "deleting all")
}

func (p program) discovery() {
	client := p.typed.Discovery()
	version, err := client.ServerVersion()
	must(err, "the version")
	check(version.Minor == "36", "the version is %v", version)
	_, lists, err := client.ServerGroupsAndResources()
	must(err, "discovery")
	check(len(lists) > 20, "%d lists of resources", len(lists))
	document, err := client.OpenAPISchema()
	must(err, "OpenAPI v2 in protobuf")
	described := false
	for _, definition := range document.Definitions.AdditionalProperties {
		if definition.Name == "io.k8s.api.core.v1.Pod" {
			described = definition.Value.Description != "" && len(definition.Value.Properties.AdditionalProperties) == 5
		}
	}
	check(described, "OpenAPI v2 describes pods")
	paths, err := client.OpenAPIV3().Paths()
	must(err, "OpenAPI v3")
	document3, err := paths["apis/apps/v1"].Schema("application/com.github.proto-openapi.spec.v3.v1.0+protobuf")
	must(err, "OpenAPI v3 in protobuf")
	check(len(document3) > 10000, "OpenAPI v3 has %d bytes", len(document3))
	mapper := restmapper.NewDeferredDiscoveryRESTMapper(memory.NewMemCacheClient(client))
	mapping, err := mapper.RESTMapping(schema.GroupKind{Group: "apps", Kind: "StatefulSet"})
	must(err, "the mapping of a kind")
	check(mapping.Resource.Resource == "statefulsets" && mapping.Resource.Version == "v1", "mapped to %v", mapping.Resource)
}

func (p program) dynamic() {
	client := dynamic.NewForConfigOrDie(p.config).Resource(schema.GroupVersionResource{Version: "v1", Resource: "configmaps"}).Namespace(namespace)
	object := &unstructured.Unstructured{Object: map[string]any{
		"apiVersion": "v1", "kind": "ConfigMap", "metadata": map[string]any{"name": "u"}, "data": map[string]any{"k": "v"},
	}}
	made, err := client.Create(p.ctx, object, metav1.CreateOptions{})
	must(err, "creating")
	check(made.GetUID() != "", "made %v", made)
	list, err := client.List(p.ctx, metav1.ListOptions{FieldSelector: "metadata.name=u"})
	must(err, "listing")
	check(len(list.Items) == 1 && list.Items[0].GetKind() == "ConfigMap", "listed %v", list)
	must(client.Delete(p.ctx, "u", metav1.DeleteOptions{}), "deleting")
}

func (p program) metadata() {
	client := metadata.NewForConfigOrDie(p.config).Resource(schema.GroupVersionResource{Version: "v1", Resource: "services"})
	list, err := client.Namespace("default").List(p.ctx, metav1.ListOptions{})
	must(err, "listing metadata")
	check(len(list.Items) == 1 && list.Items[0].Name == "kubernetes", "listed %v", list)
}

func (p program) apply() {
	deployments := p.typed.AppsV1().Deployments(namespace)
	configuration := func(replicas int32) *applyapps.DeploymentApplyConfiguration {
		labels := map[string]string{"app": "a"}
		container := applycore.Container().WithName("c").WithImage("registry.example/app:1")
		template := applycore.PodTemplateSpec().WithLabels(labels).WithSpec(applycore.PodSpec().WithContainers(container))
		selector := applymeta.LabelSelector().WithMatchLabels(labels)
		return applyapps.Deployment("a", namespace).WithSpec(applyapps.DeploymentSpec().WithReplicas(replicas).WithSelector(selector).WithTemplate(template))
	}
	_, err := deployments.Apply(p.ctx, configuration(1), metav1.ApplyOptions{FieldManager: "one"})
	must(err, "applying")
	_, err = deployments.Apply(p.ctx, configuration(2), metav1.ApplyOptions{FieldManager: "two"})
	check(apierrors.IsConflict(err), "applying what another owns: %v", err)
	applied, err := deployments.Apply(p.ctx, configuration(2), metav1.ApplyOptions{FieldManager: "two", Force: true})
	must(err, "applying by force")
	check(*applied.Spec.Replicas == 2 && len(applied.ManagedFields) == 2, "applied %v", applied)
	own, err := applyapps.ExtractDeployment(applied, "two")
	must(err, "what a manager owns")
	check(own.Spec != nil && *own.Spec.Replicas == 2, "it owns %v", own)
}

func (p program) pages() {
	configs := p.typed.CoreV1().ConfigMaps(namespace)
	for i := range 25 {
		_, err := configs.Create(p.ctx, &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Name: fmt.Sprintf("page-%02d", i), Labels: map[string]string{"set": "pages"}}}, metav1.CreateOptions{})
		must(err, "creating")
	}
	list, err := configs.List(p.ctx, metav1.ListOptions{LabelSelector: "set=pages", Limit: 10})
	must(err, "the first page")
	check(len(list.Items) == 10 && list.Continue != "", "the first page has %d", len(list.Items))
	seen := 0
	pages := pager.New(pager.SimplePageFunc(func(options metav1.ListOptions) (runtime.Object, error) {
		return configs.List(p.ctx, options)
	}))
	pages.PageSize = 10
	must(pages.EachListItem(p.ctx, metav1.ListOptions{LabelSelector: "set=pages"}, func(runtime.Object) error {
		seen++
		return nil
	}), "all pages")
	check(seen == 25, "%d items in all pages", seen)
}

func (p program) watchList() {
	yes := true
	stream, err := p.typed.CoreV1().ConfigMaps(namespace).Watch(p.ctx, metav1.ListOptions{
		LabelSelector: "set=pages", SendInitialEvents: &yes, AllowWatchBookmarks: true,
		ResourceVersionMatch: metav1.ResourceVersionMatchNotOlderThan,
	})
	must(err, "watching")
	defer stream.Stop()
	for added := 0; ; {
		select {
		case event := <-stream.ResultChan():
			switch event.Type {
			case watch.Added:
				added++
				continue
			case watch.Bookmark:
				marked := event.Object.(*corev1.ConfigMap).Annotations[metav1.InitialEventsAnnotationKey]
				check(added == 25 && marked == "true", "%d initial events, marked %q", added, marked)
				return
			default:
				fail("an event %v", event)
			}
		case <-time.After(patience):
			fail("no bookmark after %d events", added)
		}
	}
}

func (p program) informers() {
	var added, updated, deleted atomic.Int32
	factory := informers.NewSharedInformerFactoryWithOptions(p.typed, time.Second, informers.WithNamespace(namespace))
	configs := factory.Core().V1().ConfigMaps()
	_, err := configs.Informer().AddEventHandler(cache.ResourceEventHandlerFuncs{
		AddFunc:    func(any) { added.Add(1) },
		UpdateFunc: func(any, any) { updated.Add(1) },
		DeleteFunc: func(any) { deleted.Add(1) },
	})
	must(err, "a handler")
	ctx, stop := context.WithCancel(p.ctx)
	defer factory.Shutdown()
	defer stop()
	factory.Start(ctx.Done())
	check(cache.WaitForCacheSync(ctx.Done(), configs.Informer().HasSynced), "the informer has everything")
	client := p.typed.CoreV1().ConfigMaps(namespace)
	all, err := configs.Lister().ConfigMaps(namespace).List(labels.Everything())
	must(err, "listing from the cache")
	direct, err := client.List(p.ctx, metav1.ListOptions{})
	must(err, "listing")
	check(len(all) == len(direct.Items) && len(all) >= 25, "%d in the cache, %d in the server", len(all), len(direct.Items))
	before := updated.Load()
	eventually("a resync", func() bool { return updated.Load() >= before+25 })
	made, err := client.Create(p.ctx, &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Name: "seen"}}, metav1.CreateOptions{})
	must(err, "creating")
	eventually("the new object", func() bool { _, err := configs.Lister().ConfigMaps(namespace).Get("seen"); return err == nil })
	made.Data = map[string]string{"a": "1"}
	_, err = client.Update(p.ctx, made, metav1.UpdateOptions{})
	must(err, "updating")
	eventually("the change", func() bool {
		found, err := configs.Lister().ConfigMaps(namespace).Get("seen")
		return err == nil && found.Data["a"] == "1"
	})
	must(client.Delete(p.ctx, "seen", metav1.DeleteOptions{}), "deleting")
	eventually("the deletion", func() bool { return deleted.Load() == 1 })
	check(int(added.Load()) == len(all)+1, "%d added", added.Load())
}

func (p program) leaderElection() {
	lock := func(identity string) resourcelock.Interface {
		made, err := resourcelock.New(resourcelock.LeasesResourceLock, namespace, "leader", p.typed.CoreV1(), p.typed.CoordinationV1(), resourcelock.ResourceLockConfig{Identity: identity})
		must(err, "a lock")
		return made
	}
	leads := make(chan string, 2)
	run := func(ctx context.Context, identity string) {
		leaderelection.RunOrDie(ctx, leaderelection.LeaderElectionConfig{
			Lock: lock(identity), ReleaseOnCancel: true,
			LeaseDuration: 6 * time.Second, RenewDeadline: 4 * time.Second, RetryPeriod: 200 * time.Millisecond,
			Callbacks: leaderelection.LeaderCallbacks{OnStartedLeading: func(context.Context) { leads <- identity }, OnStoppedLeading: func() {}},
		})
	}
	first, resign := context.WithCancel(p.ctx)
	go run(first, "first")
	leader := func() string {
		select {
		case identity := <-leads:
			return identity
		case <-time.After(patience):
			fail("nobody leads")
			return ""
		}
	}
	check(leader() == "first", "the first one leads")
	second, end := context.WithCancel(p.ctx)
	defer end()
	go run(second, "second")
	resign()
	check(leader() == "second", "the second one leads when the first resigns")
}

func eventually(what string, holds func() bool) {
	for end := time.Now().Add(patience); !holds(); time.Sleep(20 * time.Millisecond) {
		check(time.Now().Before(end), "%s never came", what)
	}
}

func must(err error, what string) {
	check(err == nil, "%s: %v", what, err)
}

func check(holds bool, format string, arguments ...any) {
	if !holds {
		fail(format, arguments...)
	}
}

func fail(format string, arguments ...any) {
	fmt.Fprintf(os.Stderr, format+"\n", arguments...)
	os.Exit(1)
}
