/** Style sheets are gathered into one file by the build. */
declare module "*.css";
