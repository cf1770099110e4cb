// The program in the tests' image: a few commands, linked statically.
#include <arpa/inet.h>
#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/mount.h>
#include <sys/socket.h>
#include <unistd.h>

static void leave(int signal) { (void)signal; _exit(7); }

int main(int count, char **arguments) {
  const char *command = count > 1 ? arguments[1] : "sleep";
  const char *first = count > 2 ? arguments[2] : "";
  const char *second = count > 3 ? arguments[3] : "";
  setvbuf(stdout, NULL, _IOLBF, 0);
  if (!strcmp(command, "print")) {
    puts(first);
    if (*second) fprintf(stderr, "%s\n", second);
    return 0;
  }
  if (!strcmp(command, "exit")) return atoi(first);
  if (!strcmp(command, "env")) {
    const char *value = getenv(first);
    puts(value ? value : "(unset)");
    return 0;
  }
  if (!strcmp(command, "cat")) {
    char buffer[4096];
    ssize_t length;
    int file = *first ? open(first, O_RDONLY) : 0;
    if (file < 0) { printf("errno %d\n", errno); return 1; }
    while ((length = read(file, buffer, sizeof buffer)) > 0) write(1, buffer, length);
    return 0;
  }
  if (!strcmp(command, "write")) {
    int file = open(first, O_WRONLY | O_CREAT | O_TRUNC, 0644);
    if (file < 0 || write(file, second, strlen(second)) < 0) { printf("errno %d\n", errno); return 1; }
    return 0;
  }
  if (!strcmp(command, "eat"))
    for (;;) memset(malloc(1 << 20), 1, 1 << 20);
  if (!strcmp(command, "mount")) {
    printf("errno %d\n", mount("x", "/tmp", "tmpfs", 0, "") ? errno : 0);
    return 0;
  }
  if (!strcmp(command, "call")) {
    printf("errno %d\n", syscall(atoi(first), 0, 0, 0, 0, 0, 0) < 0 ? errno : 0);
    return 0;
  }
  if (!strcmp(command, "trap")) {
    signal(SIGTERM, leave);
    puts("ready");
    for (;;) pause();
  }
  if (!strcmp(command, "tty")) {
    struct winsize size = {0};
    char line[100];
    printf("tty %d %s\n", isatty(0), ttyname(0) ? ttyname(0) : "-");
    if (!fgets(line, sizeof line, stdin)) return 1;
    ioctl(0, TIOCGWINSZ, &size);
    printf("size %dx%d\n", size.ws_col, size.ws_row);
    return 3;
  }
  if (!strcmp(command, "serve")) {
    struct sockaddr_in address = {.sin_family = AF_INET, .sin_port = htons(atoi(first)), .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
    int listener = socket(AF_INET, SOCK_STREAM, 0);
    if (bind(listener, (struct sockaddr *)&address, sizeof address) || listen(listener, 5)) return 1;
    puts("ready");
    for (;;) {
      int client = accept(listener, NULL, NULL);
      write(client, "hello", 5);
      close(client);
    }
  }
  if (!strcmp(command, "spam")) {
    for (int i = 0; i < atoi(first); i++) printf("line %d\n", i);
    return 0;
  }
  if (!strcmp(command, "host")) {
    char name[100] = "";
    gethostname(name, sizeof name - 1);
    puts(name);
    puts(getcwd(name, sizeof name));
    return 0;
  }
  for (;;) pause();
}
